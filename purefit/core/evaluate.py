"""Evaluation and prediction, exact over the remainder."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from purefit.core.batches import batching, count_examples
from purefit.core.step import Info, measure
from purefit.core.types import Apply, Data, Loss, Metric, PyTree, Variables

__all__ = ["evaluate", "evaluate_batch", "predict_batch", "predict_examples"]


def predict_batch(apply: Apply, variables: Variables, inputs: PyTree) -> PyTree:
    """Give the outputs for a batch, in evaluation mode; the variables stay as they are."""
    outputs, _ = apply(variables, inputs, key=jax.random.key(0), train=False)
    return outputs


def predict_examples(apply: Apply, variables: Variables, inputs: PyTree) -> PyTree:
    """Give the outputs for a batch by mapping a one-example function over it with `vmap`."""

    def one(example: PyTree) -> PyTree:
        batch = jax.tree.map(lambda leaf: leaf[None], example)
        return jax.tree.map(lambda leaf: leaf[0], predict_batch(apply, variables, batch))

    return jax.vmap(one)(inputs)


def evaluate_batch(
    apply: Apply, loss: Loss, metrics: Mapping[str, Metric], variables: Variables, batch: Data
) -> Info:
    """Sum the loss and every metric over a batch, in evaluation mode."""
    return measure(loss, metrics, predict_batch(apply, variables, batch.x), batch)


def evaluate(
    apply: Apply,
    loss: Loss,
    metrics: Mapping[str, Metric],
    batch_size: int,
    variables: Variables,
    data: Data,
) -> Info:
    """Evaluate all the data inside one program: every example once.

    Returns:
        `info` with one row for each batch; sums over the rows are exact over the remainder.
    """
    batches = batching(count_examples(data), batch_size)

    def at(first: Int[Array, ""], size: int) -> Info:
        batch = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), data)
        return evaluate_batch(apply, loss, metrics, variables, batch)

    parts = []
    if batches.full:
        starts = jnp.arange(batches.full, dtype=jnp.int32) * batch_size
        parts.append(lax.map(lambda first: at(first, batch_size), starts))
    if batches.short:
        last = at(jnp.int32(batches.full * batch_size), batches.short)
        parts.append(jax.tree.map(lambda leaf: leaf[None], last))
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)
