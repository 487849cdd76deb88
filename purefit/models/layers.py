"""The few layers that the built-in networks are made of, as functions of plain dicts of arrays."""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from purefit.core.types import Key

__all__ = ["Layer", "convolution", "dense", "dropout", "he_normal", "max_pool"]

Layer = dict[str, Array]
"""One layer's parameters: weights `w` and biases `b`."""


def he_normal(key: Key, shape: tuple[int, ...]) -> Layer:
    """Draw weights with mean 0 and variance 2 / fan-in, and zero biases.

    The fan-in is the product of all axes but the last. This variance keeps the size of the signal
    through ReLU layers (He et al., 2015, arXiv 1502.01852, equation 10).
    """
    deviation = math.sqrt(2.0 / math.prod(shape[:-1]))
    weights = jax.random.normal(key, shape, jnp.float32) * jnp.float32(deviation)
    return {"w": weights, "b": jnp.zeros(shape[-1], jnp.float32)}


def dense(layer: Layer, inputs: Float[Array, "batch into"]) -> Float[Array, "batch out"]:
    """Multiply by the weights and add the biases."""
    return inputs @ layer["w"] + layer["b"][None, :]


def convolution(
    layer: Layer, images: Float[Array, "batch height width channels"]
) -> Float[Array, "batch height width out"]:
    """Convolve with stride 1, zero-padded to the same height and width, and add the biases."""
    summed = lax.conv_general_dilated(
        images, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return summed + layer["b"][None, None, None, :]


def max_pool(
    images: Float[Array, "batch height width channels"],
) -> Float[Array, "batch half_height half_width channels"]:
    """Take the largest of each 2 by 2 block; an odd last row or column is left out."""
    batch, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


def dropout(
    key: Key, rate: Float[Array, ""], values: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Set each value to 0 with probability `rate`, and divide the others by `1 - rate`."""
    kept = jax.random.bernoulli(key, 1.0 - rate, values.shape)
    return jnp.where(kept, values / (1.0 - rate), jnp.zeros_like(values))
