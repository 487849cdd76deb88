"""The shapes of things: data, variables, and the functions that a run is made of."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

__all__ = ["Apply", "Data", "Key", "Loss", "Metric", "Model", "PyTree", "Variables"]

PyTree = Any
"""Any nesting of tuples, lists, dicts and registered classes with arrays at the leaves."""

Key = PRNGKeyArray
"""A typed key, as `jax.random.key` makes it."""


class Data(NamedTuple):
    """Examples: inputs and targets, each an array or a pytree of arrays.

    Attributes:
        x: Inputs; every leaf has the examples along its first axis. Bytes (uint8) stay bytes
            on the device and are scaled to [0, 1] inside the step.
        y: Targets, with the same first axis: integer class labels for cross-entropy, numbers
            for regression, or any pytree that the loss understands.
    """

    x: PyTree
    y: PyTree


class Variables(NamedTuple):
    """What a model carries: `params` are trained, `state` (such as running means) is not."""

    params: PyTree
    state: PyTree


@runtime_checkable
class Model(Protocol):
    """A network as two pure functions; everything that comes through a door becomes one.

    Attributes:
        reads: Names of the traced hyperparameters that `apply` takes by keyword
            (such as `dropout`). A setting that a model does not read is refused.
    """

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the traced hyperparameters that `apply` takes by keyword."""
        ...

    def init(self, key: Key, inputs: PyTree) -> Variables:
        """Make the variables; of `inputs` (some prepared examples) only the shapes count."""
        ...

    def apply(
        self, variables: Variables, inputs: PyTree, *, key: Key, train: bool, **traced: Any
    ) -> tuple[PyTree, PyTree]:
        """Give the outputs for a batch, and the variables' new `state`."""
        ...


@runtime_checkable
class Apply(Protocol):
    """A model's `apply` with its traced hyperparameters already bound."""

    def __call__(
        self, variables: Variables, inputs: PyTree, *, key: Key, train: bool
    ) -> tuple[PyTree, PyTree]:
        """Give the outputs for a batch, and the variables' new `state`."""
        ...


Loss = Callable[[Any, Any], Float[Array, " batch"]]
"""`loss(outputs, targets)`: one value per example."""

Metric = Callable[[Any, Any], Float[Array, " batch"]]
"""`metric(outputs, targets)`: one value per example, whose mean is reported."""
