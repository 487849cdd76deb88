"""Evaluation is exact over the remainder, and both ways of predicting agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.evaluate import evaluate, predict_batch, predict_examples
from purefit.core.losses import cross_entropy
from purefit.core.metrics import accuracy
from purefit.core.types import Data, Variables


def apply(variables, inputs, *, key, train):
    assert train is False
    return inputs @ variables.params, variables.state


@pytest.fixture(name="problem")
def _problem():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(23, 4)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 3, 23), jnp.int32)
    return Variables(jnp.asarray(rng.normal(size=(4, 3)), jnp.float32), ()), Data(x, y)


@pytest.mark.parametrize("size", [1, 5, 22, 23, 100])
def test_every_batch_size_counts_each_example_once(problem, size):
    variables, data = problem
    rows = evaluate(apply, cross_entropy, {"accuracy": accuracy}, size, variables, data)
    logits = np.asarray(data.x, np.float64) @ np.asarray(variables.params, np.float64)
    logsum = np.log(np.exp(logits).sum(1))
    losses = logsum - logits[np.arange(23), data.y]
    merged = {name: row.merged() for name, row in rows.items()}
    assert merged["loss"].count == merged["accuracy"].count == 23
    np.testing.assert_allclose(merged["loss"].value, losses.mean(), rtol=1e-5)
    right = (logits.argmax(1) == np.asarray(data.y)).sum()
    assert float(merged["accuracy"].total) == right


def test_mapping_a_one_example_function_predicts_the_same(problem):
    variables, data = problem
    whole = predict_batch(apply, variables, data.x)
    mapped = jax.jit(lambda x: predict_examples(apply, variables, x))(data.x)
    np.testing.assert_allclose(mapped, whole, rtol=1e-5, atol=1e-6)
