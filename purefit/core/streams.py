"""One seed, and a stream of its own for every use of it."""

from enum import IntEnum

import jax
from jaxtyping import Array, Int

from purefit.core.types import Key

__all__ = ["Stream", "stream"]


class Stream(IntEnum):
    """The uses of randomness. A number is never given to another use: saved runs rely on it."""

    INIT = 0
    ORDER = 1
    MODEL = 2


def stream(key: Key, use: Stream, index: int | Int[Array, ""] = 0) -> Key:
    """Give the key of one use at one epoch or step.

    Because each use is folded in by its own number, adding a use changes no other's bits, and
    because `index` is folded in too, nothing random has to be carried from step to step.

    Args:
        key: The run's key.
        use: What the randomness is for.
        index: The epoch (for the order of the examples) or the step (for the model).
    """
    return jax.random.fold_in(jax.random.fold_in(key, int(use)), index)
