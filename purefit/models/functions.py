"""The door for a plain pair of functions, `init` and `apply`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, final

from purefit.core.settings import Hyper
from purefit.core.types import Key, PyTree, Variables
from purefit.errors import ModelError

__all__ = ["FunctionModel", "from_functions"]

_TRACED = tuple(field.name for field in fields(Hyper))


def from_functions(init: Callable[..., PyTree], apply: Callable[..., PyTree]) -> "FunctionModel":
    """Make a model of two plain functions.

    Args:
        init: `init(key)` or `init(key, inputs)` gives the parameters, any pytree of arrays.
        apply: `apply(params, inputs)` gives the outputs for a batch. It is handed what it names
            besides: `key` (a fresh one each step), `train` (a bool), and any traced
            hyperparameter, such as `dropout`.

    Raises:
        ModelError: A function does not take these arguments.
    """
    extra = _extra(apply, "apply", 2)
    unknown = set(extra) - {"key", "train", *_TRACED}
    if unknown:
        raise ModelError(
            "Expected apply(params, inputs) to name no more than key, train or hyperparameters "
            f"({', '.join(_TRACED)}), got {', '.join(sorted(unknown))}; rename or bind it."
        )
    wants_inputs = len(_positional(init)) >= 2
    return FunctionModel(
        init, apply, wants_inputs, extra, tuple(name for name in extra if name in _TRACED)
    )


@final
@dataclass(frozen=True)
class FunctionModel:
    """Two functions as a model: see `from_functions`."""

    init_function: Callable[..., PyTree]
    apply_function: Callable[..., PyTree]
    wants_inputs: bool
    extra: tuple[str, ...]
    reads: tuple[str, ...]

    def init(self, key: Key, inputs: PyTree) -> Variables:
        """Make the parameters; there is no state."""
        arguments = (key, inputs) if self.wants_inputs else (key,)
        return Variables(self.init_function(*arguments), ())

    def apply(
        self, variables: Variables, inputs: PyTree, *, key: Key, train: bool, **traced: Any
    ) -> tuple[PyTree, PyTree]:
        """Give the outputs for a batch."""
        handed = {"key": key, "train": train, **traced}
        wanted = {name: handed[name] for name in self.extra}
        return self.apply_function(variables.params, inputs, **wanted), ()


def _positional(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]


def _extra(function: Callable[..., Any], name: str, leading: int) -> tuple[str, ...]:
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    if len(parameters) < leading:
        raise ModelError(
            f"Expected {name} to take (params, inputs), got {inspect.signature(function)}; "
            "give it both arguments."
        )
    rest = parameters[leading:]
    handed = {"key", "train", *_TRACED}
    return tuple(p.name for p in rest if p.name in handed or p.default is inspect.Parameter.empty)
