"""A small convolutional network for images."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from purefit.core.settings import check_widths
from purefit.core.types import Key, PyTree, Variables
from purefit.errors import ModelError
from purefit.models.layers import convolution, he_normal, max_pool
from purefit.models.mlp import mlp_forward, mlp_init

__all__ = ["Cnn", "cnn"]


def cnn(*channels: int, hidden: int = 128, outputs: int | None = None) -> "Cnn":
    """Describe a convolutional network: 3 by 3 convolutions, each with ReLU and 2 by 2 max-pooling.

    Behind them stand one hidden dense layer and the last layer. `pf.cnn()` has 32 and 64 channels.
    The setting `dropout` thins out the hidden dense layer.

    Args:
        *channels: Channels of the convolutions.
        hidden: Width of the dense layer.
        outputs: Width of the last layer; None lets `pf.fit` find it in the data.

    Raises:
        SettingsError: A width is no whole number of at least 1.
    """
    check_widths("channels", channels)
    check_widths("hidden", (hidden,))
    check_widths("outputs", () if outputs is None else (outputs,))
    return Cnn(tuple(channels) or (32, 64), hidden, outputs)


@final
@dataclass(frozen=True)
class Cnn:
    """A convolutional network: see `cnn`."""

    channels: tuple[int, ...]
    hidden: int
    outputs: int | None = None
    reads: tuple[str, ...] = ("dropout",)

    def init(self, key: Key, inputs: Float[Array, "batch *dims"]) -> Variables:
        """Draw the weights."""
        assert self.outputs is not None, "give outputs=, or let pf.fit find it in the data"
        _, height, width, colours = _with_channels(inputs).shape
        shrink = 2 ** len(self.channels)
        flat = (height // shrink) * (width // shrink) * self.channels[-1]
        if flat == 0:
            raise ModelError(
                f"Expected images of at least {shrink} by {shrink} pixels for {len(self.channels)} "
                f"poolings, got {height} by {width}; use fewer channels=."
            )
        convolutions, rest = jax.random.split(key)
        keys = jax.random.split(convolutions, len(self.channels))
        widths = (colours, *self.channels)
        shapes = [(3, 3, *pair) for pair in pairwise(widths)]
        conv = [he_normal(one, shape) for one, shape in zip(keys, shapes, strict=True)]
        dense = mlp_init(rest, (flat, self.hidden, self.outputs))
        return Variables({"conv": conv, "dense": dense}, ())

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
        values = _with_channels(inputs).astype(jnp.float32)
        for layer in variables.params["conv"]:
            values = max_pool(jax.nn.relu(convolution(layer, values)))
        rate = dropout if train else None
        return mlp_forward(variables.params["dense"], values, key, rate), ()


def _with_channels(images: Array) -> Float[Array, "batch height width channels"]:
    if images.ndim not in (3, 4):
        raise ModelError(
            "Expected images of shape [batch, height, width] or [batch, height, width, channels], "
            f"got {images.shape}; reshape the inputs or use another model."
        )
    return images[..., None] if images.ndim == 3 else images
