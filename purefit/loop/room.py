"""Memory that runs out, as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from purefit.errors import PurefitError
from purefit.io.datasets import reason

__all__ = ["room"]


@contextmanager
def room() -> Iterator[None]:
    """Turn a lack of memory, on the host or the device, into a `PurefitError`."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        text = str(error)
        short = isinstance(error, MemoryError) or "out of memory" in text.lower()
        if not short and "RESOURCE_EXHAUSTED" not in text:
            raise
        raise PurefitError(
            f"Expected model, data and batch to fit into memory, got: {reason(error)}; make one of "
            "them smaller."
        ) from error
