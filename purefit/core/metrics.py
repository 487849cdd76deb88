"""Metrics as mergeable pairs of a sum and a count, divided once at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from purefit.core.settings import known_name
from purefit.core.types import Metric
from purefit.errors import SettingsError

__all__ = ["METRICS", "Mean", "accuracy", "find_metrics", "mean_of"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mean:
    """A mean in two parts, so that parts over unequal batches add up exactly.

    Attributes:
        total: Sum of the values.
        count: Number of the values.
    """

    total: Float[Array, "*steps"]
    count: Int[Array, "*steps"]

    @property
    def value(self) -> Float[Array, "*steps"]:
        """The mean itself."""
        return self.total / self.count.astype(self.total.dtype)

    def merged(self) -> "Mean":
        """Add all the rows up."""
        return Mean(jnp.sum(self.total), jnp.sum(self.count))


def mean_of(values: Float[Array, " batch"]) -> Mean:
    """Put one value per example into a mergeable mean."""
    return Mean(jnp.sum(values), jnp.asarray(values.shape[0], jnp.int32))


def accuracy(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """Give 1 where the largest logit is the label's, else 0; ties go to the lowest class."""
    return (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)


METRICS: Mapping[str, Metric] = {"accuracy": accuracy}
"""The metrics known by name."""

_DEFAULTS: Mapping[Any, tuple[str, ...]] = {"cross_entropy": ("accuracy",)}


def find_metrics(
    metrics: tuple[str | Callable[..., Any], ...] | None, loss: str | Callable[..., Any]
) -> dict[str, Metric]:
    """Look the metrics of a plan up, by name; None stands for what fits the loss.

    Raises:
        SettingsError: A name is unknown.
    """
    chosen = _DEFAULTS.get(loss, ()) if metrics is None else metrics
    found: dict[str, Metric] = {}
    for metric in chosen:
        if isinstance(metric, str) or not callable(metric):
            known_name("metrics", metric, METRICS)
            name, function = metric, METRICS[metric]
        else:
            name, function = getattr(metric, "__name__", type(metric).__name__), metric
        if name == "loss" or found.get(name, function) is not function:
            raise SettingsError(
                f"Expected metrics with names of their own, got another {name}; rename that one."
            )
        found[name] = function
    return found
