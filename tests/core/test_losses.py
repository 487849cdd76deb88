"""Losses against NumPy and SciPy, one value per example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax

from purefit.core.losses import (
    LOSSES,
    cross_entropy,
    find_loss,
    mean_squared_error,
    per_example,
)
from purefit.errors import ModelError, SettingsError

logits = arrays(np.float32, (6, 5), elements=st.floats(-80, 80, width=32))


@settings(max_examples=50, deadline=None)
@given(logits, arrays(np.int32, 6, elements=st.integers(0, 4)))
def test_cross_entropy_is_scipys_log_softmax(values, labels):
    expected = -log_softmax(values.astype(np.float64), axis=1)[np.arange(6), labels]
    found = cross_entropy(jnp.asarray(values), jnp.asarray(labels))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


def test_cross_entropy_of_even_logits_is_the_log_of_the_classes():
    loss = cross_entropy(jnp.zeros((2, 10)), jnp.array([0, 9]))
    np.testing.assert_allclose(loss, np.log(10), rtol=1e-6)


def test_the_gradient_is_softmax_minus_one_hot():
    values = jnp.array([[1.0, -2.0, 0.5]])
    gradient = jax.grad(lambda z: cross_entropy(z, jnp.array([2])).sum())(values)
    exponentials = np.exp(np.array([1.0, -2.0, 0.5]))
    expected = exponentials / exponentials.sum() - np.array([0, 0, 1])
    np.testing.assert_allclose(gradient[0], expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (4, 2, 3)])
def test_mean_squared_error_averages_an_examples_own_dimensions(shape):
    rng = np.random.default_rng(0)
    outputs, targets = rng.normal(size=shape), rng.normal(size=shape)
    expected = ((outputs - targets) ** 2).reshape(4, -1).mean(axis=1)
    found = mean_squared_error(jnp.float32(outputs), jnp.float32(targets))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_losses_are_found_by_name_or_are_functions():
    assert find_loss("cross_entropy") is LOSSES["cross_entropy"]
    assert find_loss(mean_squared_error) is mean_squared_error
    with pytest.raises(SettingsError, match=r"cross_entropy, mean_squared_error, got 'mse'"):
        find_loss("mse")


def test_a_loss_that_averages_over_the_batch_is_refused():
    def averaging(outputs, targets):
        return jnp.mean((outputs - targets) ** 2)

    with pytest.raises(
        ModelError, match=r"averaging to give one value per example.*got shape \(\)"
    ):
        per_example(averaging, jnp.ones(3), jnp.ones(3), 3)
