"""From a key and an epoch to the order of the examples, and the batches of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from purefit.core.streams import Stream, stream
from purefit.core.types import Key, PyTree

__all__ = ["Batching", "batching", "count_examples", "epoch_order", "prepare", "take"]


class Batching(NamedTuple):
    """How an epoch falls into batches.

    Attributes:
        size: Examples in a full batch.
        full: Number of full batches.
        short: Examples in the last, short batch; 0 where there is none.
    """

    size: int
    full: int
    short: int

    @property
    def steps(self) -> int:
        """Batches in an epoch, the short one included."""
        return self.full + (self.short > 0)


def batching(examples: int, batch_size: int, drop_remainder: bool = False) -> Batching:
    """Work out the batches of an epoch: every example once, the last batch as short as it is."""
    full, rest = divmod(examples, batch_size)
    return Batching(batch_size, full, 0 if drop_remainder else rest)


def count_examples(data: PyTree) -> int:
    """Give the length of the first axis."""
    return jax.tree.leaves(data)[0].shape[0]


def epoch_order(
    key: Key, epoch: int | Int[Array, ""], examples: int, shuffle: bool = True
) -> Int[Array, " examples"]:
    """Give the order in which an epoch visits the examples.

    Each example draws 64 random bits, and the examples are sorted by them: one sort, where
    `jax.random.permutation` needs two or more.

    Args:
        key: The run's key.
        epoch: The epoch, counted from 0.
        examples: Number of examples.
        shuffle: False keeps the order of the data.
    """
    if not shuffle:
        return jnp.arange(examples, dtype=jnp.int32)
    high, low = jax.random.bits(stream(key, Stream.ORDER, epoch), (2, examples), jnp.uint32)
    rows = jnp.arange(examples, dtype=jnp.int32)
    _, _, order = lax.sort((high, low, rows), num_keys=2)
    return order


def take(
    data: PyTree, order: Int[Array, " examples"], first: Int[Array, ""] | int, size: int
) -> PyTree:
    """Gather `size` examples, from place `first` of the order on."""
    rows = lax.dynamic_slice_in_dim(order, first, size)
    return jax.tree.map(lambda leaf: leaf[rows], data)


def prepare(inputs: PyTree, scale_bytes: bool = True) -> PyTree:
    """Turn inputs as stored into inputs as models see them: bytes become float32 in [0, 1].

    Args:
        inputs: Any pytree of arrays; leaves that are not uint8 are left alone.
        scale_bytes: False leaves uint8 alone too, for inputs that are codes and not brightness.
    """

    def scale(leaf: Array) -> Array:
        if scale_bytes and leaf.dtype == jnp.uint8:
            return leaf.astype(jnp.float32) / jnp.float32(255)
        return leaf

    return jax.tree.map(scale, inputs)
