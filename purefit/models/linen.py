"""The door for Flax Linen modules."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, final

import jax

from purefit.core.types import Key, PyTree, Variables
from purefit.errors import ModelError
from purefit.models.shared import (
    identity_of,
    kept_dtype,
    missing,
    mode_arguments,
    parameters_of,
)

try:
    from flax import core, linen
except ModuleNotFoundError as error:
    raise missing("flax", "flax") from error

__all__ = ["LinenModel", "from_linen"]


def from_linen(module: Any, *, rngs: tuple[str, ...] = ("dropout",)) -> "LinenModel":
    """Make a model of a Flax Linen module.

    The collection `params` is trained; all others, such as `batch_stats`, are state and may
    change in training only. If `__call__` has an argument `train`, `training` or `is_training`,
    it is told the mode; `deterministic` and `use_running_average` are told the opposite.

    Args:
        module: A module whose `__call__` takes a batch of inputs (any pytree) as one argument.
        rngs: Names of the random streams that training needs; each has a key of its own, and a
            new one each step.

    Raises:
        ModelError: This is no instance of `flax.linen.Module`, or it has no `__call__`.
    """
    if not isinstance(module, linen.Module):
        given = module.__name__ if isinstance(module, type) else type(module).__name__
        raise ModelError(
            f"Expected an instance of flax.linen.Module, got {given}; "
            "call the class to make one, or use the door of its own framework."
        )
    if not callable(module):
        raise ModelError(
            f"Expected a Linen module with __call__, got {type(module).__name__} without one; "
            "define __call__(self, inputs)."
        )
    takes = parameters_of(type(module).__call__)
    return LinenModel(identity_of(module), tuple(rngs), module, takes)


@final
@dataclass(frozen=True)
class LinenModel:
    """A Flax Linen module as a model: see `from_linen`."""

    identity: Hashable = field(repr=False)
    rngs: tuple[str, ...]
    module: Any = field(compare=False)
    takes: tuple[str, ...] = field(compare=False, repr=False)
    reads: tuple[str, ...] = ()

    def init(self, key: Key, inputs: PyTree) -> Variables:
        """Draw the variables, in evaluation mode where the module can be told."""
        streams = _streams(key, ("params", *self.rngs))
        made = self.module.init(streams, inputs, **mode_arguments(self.takes, train=False))
        state = dict(core.unfreeze(made))
        return Variables(state.pop("params", {}), state)

    def apply(
        self, variables: Variables, inputs: PyTree, *, key: Key, train: bool, **traced: Any
    ) -> tuple[PyTree, PyTree]:
        """Give the outputs for a batch, and in training the collections' new values."""
        everything = {"params": variables.params, **variables.state}
        mode = mode_arguments(self.takes, train)
        if not train:
            return self.module.apply(everything, inputs, **mode), variables.state
        outputs, changed = self.module.apply(
            everything,
            inputs,
            rngs=_streams(key, self.rngs),
            mutable=list(variables.state),
            **mode,
        )
        after = {**variables.state, **core.unfreeze(changed)}
        return outputs, jax.tree.map(kept_dtype, after, variables.state)


def _streams(key: Key, names: tuple[str, ...]) -> dict[str, Key]:
    return {name: jax.random.fold_in(key, number) for number, name in enumerate(names)}
