"""A multi-layer perceptron whose forward pass finds its depth in the parameters."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from purefit.core.settings import check_widths
from purefit.core.types import Key, PyTree, Variables
from purefit.models.layers import Layer, dense, dropout, he_normal

__all__ = ["Mlp", "mlp", "mlp_forward", "mlp_init"]


def mlp(*hidden: int, outputs: int | None = None) -> "Mlp":
    """Describe a multi-layer perceptron with ReLU between its layers.

    Inputs are flattened: `[batch, 28, 28]` becomes `[batch, 784]`. Weights are drawn as He et al.
    say, biases are 0. With the setting `dropout`, each hidden layer's output is thinned out with a
    key of its own.

    Args:
        *hidden: Widths of the hidden layers; none at all gives a linear model.
        outputs: Width of the last layer. None lets `pf.fit` find it in the data: the number of
            classes, or the width of the targets.

    Raises:
        SettingsError: A width is no whole number of at least 1.
    """
    check_widths("hidden", hidden)
    check_widths("outputs", () if outputs is None else (outputs,))
    return Mlp(tuple(hidden), outputs)


@final
@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron: see `mlp`."""

    hidden: tuple[int, ...]
    outputs: int | None = None
    reads: tuple[str, ...] = ("dropout",)

    def init(self, key: Key, inputs: Float[Array, "batch *dims"]) -> Variables:
        """Draw the weights."""
        assert self.outputs is not None, "give outputs=, or let pf.fit find it in the data"
        into = inputs.reshape(inputs.shape[0], -1).shape[1]
        return Variables(mlp_init(key, (into, *self.hidden, self.outputs)), ())

    def apply(
        self,
        variables: Variables,
        inputs: Float[Array, "batch *dims"],
        *,
        key: Key,
        train: bool,
        dropout: Any = None,
    ) -> tuple[Float[Array, "batch outputs"], PyTree]:
        """Give the outputs; there is no state."""
        rate = dropout if train else None
        return mlp_forward(variables.params, inputs, key, rate), ()


def mlp_init(key: Key, widths: tuple[int, ...]) -> list[Layer]:
    """Draw a layer for each pair of neighbouring widths, each from a key of its own."""
    keys = jax.random.split(key, len(widths) - 1)
    pairs = pairwise(widths)
    return [he_normal(one, pair) for one, pair in zip(keys, pairs, strict=True)]


def mlp_forward(
    params: list[Layer], inputs: Float[Array, "batch *dims"], key: Key, rate: Any = None
) -> Float[Array, "batch outputs"]:
    """Run any number of layers, however many `params` holds.

    Args:
        params: The layers, first to last.
        inputs: Numbers of any shape behind the batch axis.
        key: Split into one key for each hidden layer's dropout.
        rate: Probability of dropping a hidden unit; None drops nothing.
    """
    values = inputs.reshape(inputs.shape[0], -1).astype(jnp.float32)
    *hidden, last = params
    keys = jax.random.split(key, len(params)) if rate is not None else None
    for number, layer in enumerate(hidden):
        values = jax.nn.relu(dense(layer, values))
        if keys is not None:
            values = dropout(keys[number], rate, values)
    return dense(last, values)
