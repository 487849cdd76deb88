"""One entrance for everything that can be a model; it imports no framework that isn't in use."""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import jax

from purefit.core.types import Key, Model
from purefit.errors import ModelError
from purefit.models.functions import from_functions
from purefit.models.shared import parameters_of

__all__ = ["as_model", "sized"]

_ACCEPTED = (
    "a model such as pf.mlp(256), a Flax Linen, Flax NNX or Equinox module, a function that makes "
    "one of nnx.Rngs or of a key, or a pair (init, apply)"
)


def as_model(given: Any) -> Model:
    """Make a model of whatever can be one.

    Args:
        given: A model; a pair of functions `(init, apply)`; a module of Flax Linen, Flax NNX or
            Equinox; a pair of an Equinox module and its `eqx.nn.State`; or a function that makes
            a module: of `rngs`, an `nnx.Rngs`, for NNX, or of a key for Equinox.

    Raises:
        ModelError: It is none of these.
        MissingExtraError: Its framework is not installed.
    """
    if isinstance(given, type):
        return _from_factory(given)
    door = _framework_of(given)
    if door is not None:
        return _open(door, given)
    if all(hasattr(given, name) for name in ("init", "apply", "reads")):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        if all(map(callable, given)):
            return from_functions(*given)
        if _framework_of(given[0]) == "equinox":
            return _open("equinox", given)
    if callable(given):
        return _from_factory(given)
    raise ModelError(f"Expected {_ACCEPTED}, got {type(given).__name__}; pass one of these.")


def sized(model: Model, outputs: int) -> Model:
    """Give a model that leaves its number of outputs open that number; any other stays as it is."""
    if getattr(model, "outputs", outputs) is None:
        return replace(model, outputs=outputs)  # type: ignore[type-var]
    return model


_CLASSES = {"linen": "flax.linen", "nnx": "flax.nnx", "equinox": "equinox"}


def _framework_of(given: Any, belongs: Callable[[Any, Any], bool] = isinstance) -> str | None:
    """Name the door for an instance, without importing anything: its class has been by now."""
    for door, name in _CLASSES.items():
        module = getattr(sys.modules.get(name), "Module", None)
        if module is not None and belongs(given, module):
            return door
    return None


def _open(door: str, given: Any) -> Model:
    return getattr(import_module(f"purefit.models.{door}"), f"from_{door}")(given)


def _from_factory(factory: Any) -> Model:
    name = getattr(factory, "__name__", type(factory).__name__)
    door = _framework_of(factory, issubclass) if isinstance(factory, type) else None
    if "rngs" in parameters_of(factory) or door == "nnx":
        return _open("nnx", factory)
    if door == "linen":
        return _open("linen", factory)
    kinds: list[Any] = []

    def look(key: Key) -> None:
        made = factory(key)
        kinds.append(made[0] if isinstance(made, tuple) and made else made)

    try:
        jax.eval_shape(look, jax.random.key(0))
    except Exception as error:
        raise ModelError(
            f"Expected {_ACCEPTED}, got {name}, which fails when it is called with a key "
            f"({type(error).__name__}: {error}); pass one of these."
        ) from error
    if _framework_of(kinds[0]) == "equinox":
        return _open("equinox", factory)
    raise ModelError(
        f"Expected {_ACCEPTED}, got {name}, which makes {type(kinds[0]).__name__}; "
        "pass one of these."
    )
