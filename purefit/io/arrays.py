"""Arrays to a folder and back through Orbax, without its log messages."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from purefit.io.fingerprint import Leaf

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(folder: Path, leaves: Sequence[Leaf]) -> None:
    """Write the leaves as one flat Orbax tree; `folder` must not exist yet.

    Leaves without elements are not written (Orbax refuses them): their shape says everything.
    """
    arrays = {
        _name(index, leaf.path): _storable(leaf.array)
        for index, leaf in enumerate(leaves)
        if leaf.array.size
    }
    if arrays:
        with _quiet(), _checkpointer() as checkpointer:
            checkpointer.save(folder.absolute(), args=ocp.args.StandardSave(arrays))


def read_arrays(folder: Path, empty: Sequence[Leaf]) -> list[Leaf]:
    """Read back what `write_arrays` wrote.

    Args:
        folder: Where it was written.
        empty: The same leaves with arrays of the right dtype and shape but any values.

    Raises:
        Exception: Whatever Orbax raises where the folder is not what it was.
    """
    arrays = {}
    if any(leaf.array.size for leaf in empty):
        with _quiet(), _checkpointer() as checkpointer:
            arrays = checkpointer.restore(folder.absolute(), args=ocp.args.StandardRestore())
    read = []
    for index, leaf in enumerate(empty):
        array = leaf.array
        if array.size:
            array = np.asarray(arrays[_name(index, leaf.path)])
            array = array.view(leaf.array.dtype) if _is_exotic(leaf.array.dtype) else array
        read.append(Leaf(leaf.path, array, leaf.dtype))
    return read


def _name(index: int, path: str) -> str:
    """Give a name that is unique and safe everywhere, and still tells what it is."""
    return f"{index:05d}_{re.sub('[^A-Za-z0-9]+', '_', path).strip('_')}"


def _storable(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if _is_exotic(array.dtype) else array


def _is_exotic(dtype: np.dtype) -> bool:
    """Tell the dtypes of a byte or less (float8, int4, ...) of which Orbax knows only some."""
    return dtype.itemsize == 1 and dtype not in (np.bool_, np.int8, np.uint8)


def _checkpointer() -> ocp.Checkpointer:
    """Make a checkpointer that waits for no other process: the caller alone reads or writes."""
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"purefit_{me}"
    )
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop Orbax's own log records meanwhile: what goes wrong is raised as well."""

    def not_orbax(record: logging.LogRecord) -> bool:
        return "orbax" not in Path(record.pathname).parts

    logger = logging.getLogger("absl")
    logger.addFilter(not_orbax)
    try:
        yield
    finally:
        logger.removeFilter(not_orbax)
