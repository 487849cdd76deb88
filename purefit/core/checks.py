"""Checks of data on the host, before anything is compiled: forms, dtypes, lengths and values."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.types import Data, PyTree
from purefit.errors import DataError

__all__ = ["check_data", "check_inputs", "check_same_form", "normalise"]

_INT32 = np.iinfo(np.int32)


def normalise(data: Any, what: str) -> Data:
    """Turn what was given as examples into `Data` whose leaves have dtypes that JAX keeps.

    float64 becomes float32, the integers int32; bool, float16, bfloat16, float32 and, in the
    inputs, uint8 stay. uint8 targets become int32 as well, since they are numbers and not
    brightness. A JAX array stays on its device, lists of numbers and whatever else turns into an
    array by itself (a pandas frame, a tensor) become NumPy arrays. No value is changed but for
    the rounding of float64.

    A list that holds arrays or dicts is a tree with these as its parts, as everywhere in JAX; a
    list of anything else is one array.

    Args:
        data: `Data`, a pair `(x, y)`, or a dict `{"x": ..., "y": ...}`.
        what: What the examples are called in messages, such as "train".

    Raises:
        DataError: It is none of these, a leaf is no array of numbers, or a value does not fit.
    """
    if isinstance(data, Mapping) and set(data) == {"x", "y"}:
        data = (data["x"], data["y"])
    if not isinstance(data, tuple) or len(data) != 2:
        raise DataError(
            f"Expected {what} to be a pair (x, y), Data or a dict with x and y, got "
            f"{_describe(data)}; give inputs and targets together."
        )
    x = _normalise(data[0], f"{what}.x")
    y = _normalise(data[1], f"{what}.y")
    return Data(x, jax.tree.map(_no_bytes, y))


def check_data(data: Data, what: str) -> None:
    """Refuse examples that cannot be trained on or evaluated.

    Args:
        data: Normalised examples.
        what: What they are called in messages, such as "train".

    Raises:
        DataError: A side without arrays, lengths that differ, nothing there, NaN or infinity.
    """
    for side, tree in (("x", data.x), ("y", data.y)):
        _check_there(tree, f"{what}.{side}")
    _check_leaves(data, what)


def check_inputs(inputs: Any, what: str = "inputs") -> PyTree:
    """Normalise and check inputs that come without targets, as for a prediction.

    Raises:
        DataError: As `normalise` and `check_data` say.
    """
    inputs = _normalise(inputs, what)
    _check_leaves(inputs, what)
    return inputs


def check_same_form(
    train: PyTree, valid: PyTree, names: tuple[str, str] = ("train", "valid")
) -> None:
    """Refuse examples of another form than the training examples; only lengths may differ.

    Args:
        train: Normalised examples, or one side of them.
        valid: The same side of others.
        names: What the two are called in messages.

    Raises:
        DataError: Names the first difference in structure, shape or dtype.
    """
    ours, theirs = _named(train, names[0]), _named(valid, names[1])
    structures: list[Any] = [jax.tree.structure(train), jax.tree.structure(valid)]
    if structures[0] != structures[1]:
        raise DataError(
            f"Expected {names[1]} to be built like {names[0]}, with {', '.join(ours)}, got "
            f"{', '.join(theirs) or 'no arrays'}; give both the same structure."
        )
    for (ours_name, one), (name, other) in zip(ours.items(), theirs.items(), strict=True):
        if one.shape[1:] != other.shape[1:]:
            raise DataError(
                f"Expected {name} to have examples of shape {one.shape[1:]} like {ours_name}, got "
                f"{other.shape[1:]}; prepare both alike."
            )
        if one.dtype != other.dtype:
            raise DataError(
                f"Expected {name} to have dtype {one.dtype} like {ours_name}, got {other.dtype}; "
                "prepare both alike."
            )


def _normalise(tree: Any, what: str) -> PyTree:
    def leaf(path: Any, value: Any) -> Any:
        return _keep(_array(value, name := _name(what, path)), name)

    return jax.tree_util.tree_map_with_path(leaf, tree, is_leaf=_is_leaf)


def _check_there(tree: PyTree, what: str) -> None:
    if not jax.tree.leaves(tree):
        raise DataError(f"Expected {what} to hold an array, got {_describe(tree)}; give one.")


def _check_leaves(tree: PyTree, what: str) -> None:
    _check_there(tree, what)
    leaves = _named(tree, what)
    for name, leaf in leaves.items():
        if leaf.ndim == 0:
            raise DataError(
                f"Expected {name} to have the examples along its first axis, got a single number; "
                "put the examples into one array."
            )
    (first, one), *others = leaves.items()
    for name, leaf in others:
        if len(leaf) != len(one):
            raise DataError(
                f"Expected {first} and {name} to have equal lengths, got {len(one)} and "
                f"{len(leaf)}; give each example once in every array."
            )
    for name, leaf in leaves.items():
        if leaf.size == 0:
            raise DataError(
                f"Expected {name} to hold at least one example of at least one number, got shape "
                f"{leaf.shape}; leave nothing empty."
            )
        _check_finite(leaf, name)


def _named(tree: PyTree, what: str) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(what, path): leaf for path, leaf in leaves}


def _name(what: str, path: Any) -> str:
    return what + jax.tree_util.keystr(path)


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"a {kind} with {', '.join(map(repr, value)) or 'nothing in it'}"
    return f"a {kind} of {len(value)}" if isinstance(value, tuple | list) else kind


def _is_leaf(node: Any) -> bool:
    return isinstance(node, Iterator | range) or _is_list_of_numbers(node)


def _is_list_of_numbers(node: Any) -> bool:
    return isinstance(node, list) and not any(
        isinstance(item, dict | tuple)
        or (isinstance(item, list) and not _is_list_of_numbers(item))
        or (hasattr(item, "__array__") and not isinstance(item, np.generic))
        for item in node
    )


def _array(value: Any, name: str) -> Any:
    if isinstance(value, jax.Array):
        return value
    if hasattr(value, "tocsr"):
        raise DataError(
            f"Expected {name} to be a dense array, got a sparse {type(value).__name__}; give its "
            "toarray()."
        )
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise DataError(
            f"Expected {name} to have every value, got a masked array with "
            f"{np.ma.count_masked(value)} masked; give its filled() with a value of your choice."
        )
    if not isinstance(value, list | int | float | complex) and not hasattr(value, "__array__"):
        raise DataError(
            f"Expected {name} to be an array of numbers, got {type(value).__name__}; turn it into "
            "one with numpy.asarray."
        )
    try:
        return np.asarray(value)
    except Exception as error:  # What __array__ of another library raises is anyone's guess.
        raise DataError(
            f"Expected {name} to be an array of numbers, got {type(value).__name__} that cannot "
            "become one; give examples of equal shape, as an array."
        ) from error


def _keep(array: Any, name: str) -> Any:
    target = _target(array.dtype)
    if target is None:
        raise DataError(
            f"Expected {name} to hold numbers, got dtype {array.dtype}; convert or encode it first."
        )
    if array.dtype == target:
        return array
    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4:
        _refuse(
            array,
            lambda values: (values < _INT32.min) | (values > _INT32.max),
            f"Expected {name} to hold integers between {_INT32.min} and {_INT32.max}",
            "renumber, or use floats",
        )
    with np.errstate(over="ignore"):
        kept = array.astype(target)
    if array.dtype.kind == "f":
        _refuse(
            array,
            lambda values: np.isfinite(values) & ~np.isfinite(np.asarray(kept)),
            f"Expected {name} to hold numbers within the range of float32",
            "rescale them",
        )
    return kept


def _target(dtype: Any) -> np.dtype | None:
    if not isinstance(dtype, np.dtype):
        return None
    native = dtype.newbyteorder("=")
    if native in (np.bool_, np.uint8, np.float16, jnp.bfloat16, np.float32):
        return native
    if native.kind not in "iuf":
        return None
    return np.dtype(np.int32 if dtype.kind in "iu" else np.float32)


def _refuse(array: Any, bad: Callable[[Any], Any], expected: str, remedy: str) -> None:
    values = np.asarray(array)
    found = bad(values)
    if np.any(found):
        index = np.unravel_index(int(np.argmax(found)), values.shape)
        place = f" at index {_index(index)}" if index else ""
        raise DataError(f"{expected}, got {values[index]}{place}; {remedy}.")


def _no_bytes(leaf: Any) -> Any:
    return leaf.astype(np.int32) if leaf.dtype == np.uint8 else leaf


def _check_finite(leaf: Any, name: str) -> None:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return
    finite = np.isfinite(np.asarray(leaf))
    count = finite.size - int(np.count_nonzero(finite))
    if count:
        index = np.unravel_index(int(np.argmin(finite)), finite.shape)
        raise DataError(
            f"Expected {name} to hold finite numbers, got {count} that "
            f"{'is' if count == 1 else 'are'} NaN or infinite, the first at index "
            f"{_index(index)}; drop or replace {'it' if count == 1 else 'them'}."
        )


def _index(index: tuple[Any, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in index)}]"
