"""Starting weights and batch order shared by the PyTorch recording and the tests."""

import math

import numpy as np
from numpy.typing import NDArray

Layer = dict[str, NDArray[np.float32]]

TRAIN_ROWS = 60000


def _he_layer(rng: np.random.Generator, shape: tuple[int, ...]) -> Layer:
    """One layer: He-normal weights (every axis but the last is fan-in) and zero biases."""
    std = math.sqrt(2.0 / math.prod(shape[:-1]))
    weights = (rng.standard_normal(shape) * std).astype(np.float32)
    return {"w": weights, "b": np.zeros(shape[-1], np.float32)}


def mlp_weights() -> list[Layer]:
    """Starting weights of the 784-256-128-10 network, kernels as (inputs, outputs)."""
    rng = np.random.default_rng(0)
    return [_he_layer(rng, shape) for shape in ((784, 256), (256, 128), (128, 10))]


def cnn_weights() -> dict[str, list[Layer]]:
    """Starting weights of the convolutional network: HWIO kernels for NHWC inputs.

    The rows of the first dense kernel follow the features flattened in (H, W, C) order.
    """
    rng = np.random.default_rng(1)
    return {
        "conv": [_he_layer(rng, shape) for shape in ((3, 3, 1, 32), (3, 3, 32, 64))],
        "dense": [_he_layer(rng, shape) for shape in ((7 * 7 * 64, 128), (128, 10))],
    }


def batch_indices(steps: int, batch_size: int) -> NDArray[np.int64]:
    """Training rows of each batch, as [steps, batch_size].

    Consecutive permutations of all rows are joined end to end, so one batch can take the
    last rows of a permutation and the first of the next.
    """
    rng = np.random.default_rng(2)
    count = steps * batch_size
    passes = max(1, -(-count // TRAIN_ROWS))
    order = np.concatenate([rng.permutation(TRAIN_ROWS) for _ in range(passes)])
    return order[:count].reshape(steps, batch_size).astype(np.int64)
