import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.models.layers import convolution, dense, dropout, he_normal, max_pool


@pytest.mark.parametrize("shape", [(784, 300), (3, 3, 32, 64)])
def test_he_normal_has_the_variance_of_the_paper(shape):
    layer = he_normal(jax.random.key(0), shape)
    weights = np.asarray(layer["w"], np.float64)
    variance = 2 / np.prod(shape[:-1])
    count = weights.size
    assert abs(weights.mean()) < 4 * math.sqrt(variance / count)
    # The variance of a sample of normal numbers has a relative deviation of sqrt(2 / count).
    assert abs(weights.var() / variance - 1) < 4 * math.sqrt(2 / count)


@pytest.mark.parametrize("shape", [(784, 30), (3, 3, 4, 8), (1, 1)])
def test_he_normal_is_a_scaled_normal_draw_and_zero_biases(shape):
    key = jax.random.key(7)
    layer = he_normal(key, shape)
    drawn = np.asarray(jax.random.normal(key, shape, jnp.float32))
    scale = np.float32(np.sqrt(2.0 / np.prod(shape[:-1])))
    np.testing.assert_array_equal(layer["w"], drawn * scale)
    np.testing.assert_array_equal(layer["b"], np.zeros(shape[-1], np.float32))
    assert layer["w"].dtype == layer["b"].dtype == jnp.float32


def test_dense_is_a_product_and_a_sum():
    layer = {"w": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": jnp.array([10.0, 20.0])}
    np.testing.assert_array_equal(
        dense(layer, jnp.array([[1.0, 1.0], [0.0, 2.0]])), [[14, 26], [16, 28]]
    )


def test_convolution_of_a_point_is_the_turned_kernel():
    kernel = jnp.arange(9.0).reshape(3, 3, 1, 1)
    image = jnp.zeros((1, 5, 5, 1)).at[0, 2, 2, 0].set(1.0)
    summed = convolution({"w": kernel, "b": jnp.array([0.5])}, image)
    np.testing.assert_array_equal(
        summed[0, 1:4, 1:4, 0], [[8.5, 7.5, 6.5], [5.5, 4.5, 3.5], [2.5, 1.5, 0.5]]
    )
    assert summed.shape == (1, 5, 5, 1)
    assert float(summed[0, 0, 0, 0]) == 0.5


def test_max_pool_leaves_out_an_odd_edge():
    image = jnp.arange(15.0).reshape(1, 3, 5, 1)
    np.testing.assert_array_equal(max_pool(image)[0, :, :, 0], [[6.0, 8.0]])


def test_max_pool_keeps_channels_and_examples_apart():
    images = jax.random.normal(jax.random.key(0), (2, 4, 6, 3))
    expected = np.zeros((2, 2, 3, 3))
    for i, j in np.ndindex(2, 3):
        block = np.asarray(images)[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        expected[:, i, j] = block.max((1, 2))
    np.testing.assert_array_equal(max_pool(images), expected)


def test_dropout_keeps_the_mean_and_is_reproducible():
    values = jnp.full((200, 100), 3.0)
    thinned = dropout(jax.random.key(0), jnp.float32(0.4), values)
    np.testing.assert_allclose(np.unique(thinned), [0.0, 5.0], rtol=1e-6)
    assert abs(float((thinned > 0).mean()) - 0.6) < 0.015
    np.testing.assert_array_equal(thinned, dropout(jax.random.key(0), jnp.float32(0.4), values))
    assert not np.array_equal(thinned, dropout(jax.random.key(1), jnp.float32(0.4), values))


def test_dropout_of_nothing_changes_nothing():
    values = jax.random.normal(jax.random.key(0), (5, 5))
    np.testing.assert_array_equal(dropout(jax.random.key(1), jnp.float32(0.0), values), values)


def test_dropped_values_have_no_gradient():
    rate = jnp.float32(0.5)
    values = jnp.ones(64)
    grads = jax.grad(lambda v: dropout(jax.random.key(0), rate, v).sum())(values)
    np.testing.assert_array_equal(grads, dropout(jax.random.key(0), rate, values))
