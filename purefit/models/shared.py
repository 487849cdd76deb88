"""What the doors share: what a call takes, which leaf has which name, what a model is known by."""

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import keystr
from jaxtyping import Array

from purefit.core.types import PyTree
from purefit.errors import MissingExtraError

__all__ = [
    "identity_of",
    "kept_dtype",
    "missing",
    "mode_arguments",
    "named_leaves",
    "parameters_of",
]

_TRAINING = ("train", "training", "is_training")
_EVALUATING = ("deterministic", "use_running_average")


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Give the names of the arguments that a function or class can be called with by keyword."""
    called: Any = function
    while isinstance(called, partial):
        called = called.func
    if inspect.isclass(called):
        called = called.__init__  # NNX's metaclass hides the arguments
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in parameters if p.kind in kinds)


def mode_arguments(names: Sequence[str], train: bool) -> dict[str, bool]:
    """Give those of a call's arguments that tell training from evaluation, with their values."""
    telling = dict.fromkeys(_TRAINING, train) | dict.fromkeys(_EVALUATING, not train)
    return {name: value for name, value in telling.items() if name in names}


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Give the leaves by their paths, such as `layers.0.weight`, in the order of flattening."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {keystr(path, simple=True, separator="."): leaf for path, leaf in paths}
    assert len(named) == len(paths), "two leaves have the same path"
    return named


def kept_dtype(new: Array, old: Array) -> Array:
    """Round a new float to the old one's dtype, so that a loop can carry it."""
    floats = all(jnp.issubdtype(value.dtype, jnp.floating) for value in (new, old))
    return new.astype(old.dtype) if floats else new


def identity_of(thing: object) -> Hashable:
    """Give what stands for a thing in comparisons: itself, or something unique if it has no hash.

    Compiled programs are found again by the model that they were made for.
    """
    try:
        hash(thing)
    except TypeError:
        return object()
    return thing


def missing(package: str, extra: str) -> MissingExtraError:
    """Make the error for a framework that is not installed."""
    return MissingExtraError(
        f"Expected {package} to be installed for this model, got no such package; "
        f"run pip install 'purefit[{extra}]'."
    )
