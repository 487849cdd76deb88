"""Losses: functions of outputs and targets that give one value per example."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from purefit.core.settings import known_name
from purefit.core.types import Loss, PyTree
from purefit.errors import ModelError

__all__ = ["LOSSES", "cross_entropy", "find_loss", "mean_squared_error", "per_example"]


def cross_entropy(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """Give the softmax cross-entropy from logits, in nats.

    Args:
        logits: Unnormalised log-probabilities.
        labels: Class numbers from 0 to classes - 1.
    """
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def mean_squared_error(
    outputs: Float[Array, "batch *dims"], targets: Float[Array, "batch *dims"]
) -> Float[Array, " batch"]:
    """Give the squared error, averaged over an example's own dimensions."""
    squares = jnp.square(outputs - targets)
    return jnp.mean(squares.reshape(squares.shape[0], -1), axis=-1)


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": cross_entropy,
    "mean_squared_error": mean_squared_error,
}
"""The losses known by name."""


def find_loss(loss: str | Callable[..., Any]) -> Loss:
    """Look a loss up by name; a function stays what it is.

    Raises:
        SettingsError: The name is unknown.
    """
    if isinstance(loss, str):
        known_name("loss", loss, LOSSES)
        return LOSSES[loss]
    return loss


def per_example(
    function: Loss, outputs: PyTree, targets: PyTree, size: int, what: str = "loss"
) -> Float[Array, " batch"]:
    """Call a loss or metric, and refuse at trace time anything but one value per example.

    Raises:
        ModelError: The function gave another shape.
    """
    values = function(outputs, targets)
    shape = getattr(values, "shape", None)
    if shape != (size,):
        raise ModelError(
            f"Expected the {what} {getattr(function, '__name__', function)!s} to give one value "
            f"per example, shape ({size},), got shape {shape}; do not average over the batch."
        )
    return values
