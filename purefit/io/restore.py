"""From a verified step back to a tree on the device: the same leaves, or an error naming one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.types import PyTree
from purefit.errors import CheckpointError
from purefit.io.arrays import read_arrays
from purefit.io.disk import reason
from purefit.io.fingerprint import Leaf, hash_leaves
from purefit.io.manifest import ARRAYS, LeafEntry, Manifest

__all__ = ["restore"]


def restore(path: Path, manifest: Manifest, like: PyTree) -> PyTree:
    """Read the arrays of a verified step into the structure of `like`; nothing is cast.

    Args:
        path: The step's folder.
        manifest: What `verify` or `newest` gave for it.
        like: A tree of arrays or `jax.ShapeDtypeStruct`s, typed keys included.

    Returns:
        The tree with uncommitted JAX arrays.

    Raises:
        CheckpointError: Names the first leaf that differs in presence, shape or dtype, or says
            that the bits that were read are not those that were saved.
    """
    wanted, structure = jax.tree_util.tree_flatten_with_path(like)
    empty = [_empty_like(jax.tree_util.keystr(place), leaf) for place, leaf in wanted]
    _compare(path, manifest, empty)
    try:
        leaves = read_arrays(path / ARRAYS, empty)
    except Exception as error:
        raise CheckpointError(
            f"Expected {path / ARRAYS} to be read by Orbax, got {reason(error)}; "
            "use another saved step."
        ) from error
    if hash_leaves(leaves) != manifest.state_sha256:
        raise CheckpointError(
            f"Expected {path / ARRAYS} to hold the saved bits, got others; use another saved step."
        )
    return jax.tree.unflatten(structure, [_on_device(path, leaf) for leaf in leaves])


def _empty_like(path: str, leaf: Any) -> Leaf:
    """Give a leaf of that dtype and shape with any values, for an array or its description."""
    if not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return Leaf(path, np.empty(leaf.shape, leaf.dtype), np.dtype(leaf.dtype).name)
    names = []

    def data(key: Any) -> Any:
        names.append(jax.random.key_impl(key))
        return jax.random.key_data(key)

    form = jax.eval_shape(data, leaf)
    return Leaf(path, np.empty(form.shape, form.dtype), f"key<{names[0]}>")


def _compare(path: Path, manifest: Manifest, wanted: Sequence[Leaf]) -> None:
    saved = {entry.path: entry for entry in manifest.leaves}
    for leaf in wanted:
        entry = saved.pop(leaf.path, None)
        if entry is None:
            raise _other(path, leaf.path, "to be there", "no such leaf")
        shape = leaf.array.shape
        if entry.shape != shape:
            raise _other(path, leaf.path, f"of shape {shape}", f"shape {entry.shape}")
        if entry.dtype != leaf.dtype:
            raise _other(path, leaf.path, f"of dtype {leaf.dtype}", f"dtype {entry.dtype}")
    for extra in saved.values():
        raise _other(path, extra.path, "not to be there", _form(extra))


def _form(entry: LeafEntry) -> str:
    return f"one of shape {entry.shape} and dtype {entry.dtype}"


def _other(path: Path, leaf: str, rule: str, value: str) -> CheckpointError:
    return CheckpointError(
        f"Expected leaf {leaf} in {path} {rule}, got {value}; "
        "use the model, optimizer and settings that it was saved with."
    )


def _on_device(path: Path, leaf: Leaf) -> jax.Array:
    array = jnp.array(leaf.array)
    if array.dtype != leaf.array.dtype:
        raise CheckpointError(
            f"Expected leaf {leaf.path} in {path} to stay {leaf.dtype}, got {array.dtype} from "
            "JAX; set jax_enable_x64 as when it was saved."
        )
    if leaf.dtype.startswith("key<"):
        return jax.random.wrap_key_data(array, impl=leaf.dtype[4:-1])
    return array
