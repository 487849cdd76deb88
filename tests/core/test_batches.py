"""Batches: every example once, and an exact short last batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purefit.core.batches import batching, epoch_order, prepare, take


@given(st.integers(1, 5000), st.integers(1, 600), st.booleans())
def test_batches_cover_the_examples(examples, size, drop):
    batches = batching(examples, size, drop)
    covered = batches.full * size + batches.short
    assert covered == (examples // size * size if drop else examples)
    assert 0 <= batches.short < size
    assert batches.steps == (examples // size if drop else -(-examples // size))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 50), st.integers(1, 300), st.integers(1, 64))
def test_an_epoch_visits_each_example_once(seed, epoch, examples, size):
    order = epoch_order(jax.random.key(seed), epoch, examples)
    batches = batching(examples, size)
    data = {"row": jnp.arange(examples)}
    seen = [take(data, order, i * size, size)["row"] for i in range(batches.full)]
    if batches.short:
        seen.append(take(data, order, batches.full * size, batches.short)["row"])
    assert sorted(np.concatenate(seen).tolist()) == list(range(examples))


def test_each_epoch_and_seed_has_an_order_of_its_own():
    orders = [
        tuple(epoch_order(jax.random.key(seed), epoch, 100).tolist())
        for seed in range(3)
        for epoch in range(3)
    ]
    assert len(set(orders)) == 9


def test_an_order_is_uniform():
    keys = [jax.random.key(seed) for seed in range(400)]
    first = np.array([epoch_order(key, 0, 4)[0] for key in keys])
    counts = np.bincount(first, minlength=4)
    # Four cells of 100 expected: a chi-square above 16.3 has probability 0.001.
    assert ((counts - 100) ** 2 / 100).sum() < 16.3


def test_without_shuffling_the_order_is_that_of_the_data():
    assert epoch_order(jax.random.key(0), 3, 5, shuffle=False).tolist() == [0, 1, 2, 3, 4]


def test_bytes_become_brightness_and_all_else_stays():
    inputs = {
        "image": jnp.arange(256, dtype=jnp.uint8),
        "code": jnp.array([7], jnp.int32),
        "number": jnp.array([2.5]),
    }
    ready = prepare(inputs)
    np.testing.assert_allclose(ready["image"], np.arange(256) / 255, rtol=1e-7)
    assert ready["code"].dtype == jnp.int32
    assert ready["number"].tolist() == [2.5]


def test_bytes_that_are_codes_can_stay():
    assert prepare(jnp.array([3], jnp.uint8), scale_bytes=False).dtype == jnp.uint8


@pytest.mark.parametrize("size", [1, 3])
def test_taking_gathers_every_leaf(size):
    data = (jnp.arange(10), {"z": jnp.arange(20).reshape(10, 2)})
    order = jnp.array([9, 1, 4, 0], jnp.int32)
    rows, nested = take(data, order, 1, size)
    assert rows.tolist() == [1, 4, 0][:size]
    assert nested["z"].tolist() == [[2, 3], [8, 9], [0, 1]][:size]
