"""Metrics as sums and counts: merged parts equal the whole."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from purefit.core.metrics import METRICS, Mean, accuracy, find_metrics, mean_of
from purefit.errors import SettingsError


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=60), st.data())
def test_merged_parts_equal_the_whole(values, data):
    cut = data.draw(st.integers(0, len(values)))
    parts = [mean_of(jnp.array(part, jnp.float32)) for part in (values[:cut], values[cut:]) if part]
    rows = Mean(jnp.stack([p.total for p in parts]), jnp.stack([p.count for p in parts]))
    merged = rows.merged()
    assert merged.count == len(values)
    np.testing.assert_allclose(merged.value, np.mean(values), rtol=1e-6, atol=1e-6)


def test_a_mean_of_means_would_be_wrong():
    rows = Mean(jnp.array([4.0, 5.0]), jnp.array([4, 1]))
    assert rows.value.tolist() == [1.0, 5.0]
    assert rows.merged().value == pytest.approx(9 / 5)


def test_accuracy_is_scikit_learns():
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(200, 7)), rng.integers(0, 7, 200)
    found = accuracy(jnp.float32(logits), jnp.int32(labels))
    assert float(found.mean()) == pytest.approx(accuracy_score(labels, logits.argmax(1)))


def test_the_metrics_of_a_plan():
    assert list(find_metrics(None, "cross_entropy")) == ["accuracy"]
    assert find_metrics(None, "mean_squared_error") == {}
    assert find_metrics((), "cross_entropy") == {}
    assert find_metrics(("accuracy",), "mean_squared_error") == {"accuracy": METRICS["accuracy"]}

    def error(outputs, targets):
        return abs(outputs - targets)

    assert find_metrics((error,), "mean_squared_error") == {"error": error}
    with pytest.raises(SettingsError, match="Expected metrics to be one of accuracy, got 'acc'"):
        find_metrics(("acc",), "cross_entropy")
