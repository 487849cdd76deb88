"""The state of a run: what the next step needs and nothing else, and how it starts."""

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from purefit.core.settings import Hyper
from purefit.core.streams import Stream, stream
from purefit.core.types import Key, Model, PyTree

__all__ = ["TrainState", "start", "trace_hyper"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything that the next step needs; saved whole, it is the whole story of a resume.

    Attributes:
        step: Number of finished steps.
        key: The run's key. It never changes: every use folds its own number and step into it.
        params: The trained leaves.
        model_state: The model's leaves that are not trained, such as BatchNorm's running means.
        opt_state: The optimizer's state.
    """

    step: Int[Array, ""]
    key: Key
    params: PyTree
    model_state: PyTree
    opt_state: Any


def start(
    model: Model, optimizer: optax.GradientTransformation, key: Key, inputs: PyTree
) -> TrainState:
    """Make the state before the first step.

    Args:
        model: The model whose variables are made.
        optimizer: The optimizer whose state is made.
        key: The run's key.
        inputs: Some prepared examples; only their shapes and dtypes count.
    """
    variables = model.init(stream(key, Stream.INIT), inputs)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        key=key,
        params=variables.params,
        model_state=variables.state,
        opt_state=optimizer.init(variables.params),
    )


def trace_hyper(hyper: Hyper) -> Hyper:
    """Turn given numbers into weakly typed arrays, so that they combine with any dtype.

    Arrays and traced values are left as they are.
    """
    return jax.tree.map(
        lambda value: value if isinstance(value, jax.Array) else jnp.asarray(float(value)), hyper
    )


jax.tree_util.register_dataclass(
    Hyper, data_fields=[field.name for field in fields(Hyper)], meta_fields=[]
)
