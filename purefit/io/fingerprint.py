"""The host's copy of a pytree, leaf by leaf, and the SHA-256 of its bits."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.types import PyTree
from purefit.errors import DataError

__all__ = ["Leaf", "data_fingerprint", "hash_leaves", "host_leaves", "state_hash"]

_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class Leaf:
    """One leaf of a pytree on the host.

    Attributes:
        path: Where it sits in the tree, such as `.params['layers'][0]['w']`.
        array: Its values; of a typed key the key data (uint32).
        dtype: The name of its dtype; of a typed key `key<...>` around the implementation's name.
    """

    path: str
    array: np.ndarray
    dtype: str


def host_leaves(tree: PyTree) -> list[Leaf]:
    """Copy a pytree to the host.

    Returns:
        Every leaf in order. The arrays own their memory, so the device's buffers may be donated
        or deleted afterwards.
    """
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) and not _is_key(leaf):
            leaf.copy_to_host_async()
    return [Leaf(leaf.path, np.array(leaf.array, order="C"), leaf.dtype) for leaf in _views(tree)]


def state_hash(tree: PyTree) -> str:
    """Give the SHA-256 (hexadecimal) over path, dtype, shape and bytes of every leaf in order.

    Two states with the same hash are the same bit for bit, NaNs and signs of zeros included.
    """
    return hash_leaves(_views(tree))


def data_fingerprint(data: PyTree) -> str:
    """Give the SHA-256 (hexadecimal) of arrays as they are stored, like `state_hash`.

    NumPy and JAX arrays of the same dtype and values have the same fingerprint, whatever their
    memory layout; large ones are not copied as a whole.

    Raises:
        DataError: A leaf holds Python objects instead of numbers.
    """
    return hash_leaves(_views(data))


def hash_leaves(leaves: Iterable[Leaf]) -> str:
    """Give the SHA-256 (hexadecimal) that `state_hash` gives, from leaves."""
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(json.dumps([leaf.path, leaf.dtype, list(leaf.array.shape)]).encode() + b"\n")
        for block in _blocks(leaf.array):
            digest.update(block)
    return digest.hexdigest()


def _views(tree: PyTree) -> Iterator[Leaf]:
    """Give the leaves without copying what can be read in place."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path)
        if _is_key(leaf):
            data = np.asarray(jax.random.key_data(leaf))
            yield Leaf(name, data, f"key<{jax.random.key_impl(leaf)}>")
            continue
        array = np.asarray(leaf)
        if array.dtype.hasobject:
            raise DataError(
                f"Expected leaf {name or 'data'} to be an array of numbers, got Python objects "
                f"({type(leaf).__name__}); convert it to numbers."
            )
        yield Leaf(name, array, array.dtype.name)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Give an array's bytes in C order and native byte order, a part at a time if it must copy."""
    if array.size == 0:
        return
    if array.flags.c_contiguous and array.dtype.isnative:
        yield array.reshape(-1).view(np.uint8)
        return
    rows = array if array.ndim else array[None]
    step = max(1, _BLOCK_BYTES // rows[0].nbytes)
    native = rows.dtype.newbyteorder("=")
    for first in range(0, len(rows), step):
        yield rows[first : first + step].astype(native, order="C").reshape(-1).view(np.uint8)
