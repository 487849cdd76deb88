"""Runs as pure functions: transformed, cut into segments, and stopped by a loss that blows up."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.batches import batching, epoch_order
from purefit.core.run import (
    advance,
    choose_mode,
    epoch,
    make_run,
    segment,
    start_run,
    step_of,
    straight,
)
from purefit.core.settings import Hyper, Plan, resolve
from purefit.core.state import trace_hyper
from purefit.core.types import Data
from purefit.io.fingerprint import state_hash
from purefit.models.cnn import cnn
from purefit.models.mlp import mlp

MODEL = mlp(16, outputs=3)
PLAN = Plan(epochs=2, batch_size=8)


@pytest.fixture(scope="module", name="data")
def _data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 45)
    x = rng.normal(size=(45, 5)) + 2 * np.eye(5)[y]
    return Data(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


def parts(plan=PLAN, model=MODEL, examples=45, **hyper):
    """Give the step, the batches and a start, as `make_run` makes them."""
    batches = batching(examples, plan.batch_size)
    total = plan.epochs * batches.steps
    resolved = trace_hyper(resolve(Hyper(**hyper), plan, model.reads))
    return step_of(model, plan, resolved, total), batches


def begin(data, plan=PLAN, model=MODEL, seed=0, **hyper):
    resolved = trace_hyper(resolve(Hyper(**hyper), plan, model.reads))
    total = plan.epochs * batching(len(data.y), plan.batch_size).steps
    make = partial(start_run, model, plan)
    return jax.jit(lambda key: make(resolved, total, key, data.x))(jax.random.key(seed))


def test_a_run_learns_and_its_history_has_a_row_an_epoch(data):
    plan = Plan(epochs=30, batch_size=8, optimizer="sgd")
    state, history = jax.jit(make_run(MODEL, plan))(
        jax.random.key(0), Hyper(learning_rate=0.1), data, data
    )
    assert state.step == 30 * 6
    assert set(history) == {
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "step_loss",
    }
    assert history["step_loss"].shape == (30, 6)
    assert history["train_loss"].shape == (30,)
    assert history["test_accuracy"][-1] > 0.9
    assert history["train_loss"][-1] < 0.3 * history["train_loss"][0]


def test_the_same_key_gives_the_same_bits_and_another_key_others(data):
    run = jax.jit(make_run(MODEL, PLAN))
    hashes = [state_hash(run(jax.random.key(seed), Hyper(), data)[0]) for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_mapped_run_is_the_solo_run_up_to_rounding(data):
    run = make_run(MODEL, PLAN)
    keys = jax.random.split(jax.random.key(5), 3)
    rates = jnp.array([1e-3, 1e-2, 3e-2])
    with jax.numpy_dtype_promotion("standard"):
        lanes, _ = jax.jit(jax.vmap(lambda key, rate: run(key, Hyper(learning_rate=rate), data)))(
            keys, rates
        )
        for lane in range(3):
            solo, _ = jax.jit(run)(keys[lane], Hyper(learning_rate=rates[lane]), data)
            mine = jax.tree.map(lambda leaf, lane=lane: leaf[lane], lanes.params)
            jax.tree.map(
                partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5), mine, solo.params
            )


def test_the_derivative_of_a_run_by_its_learning_rate_is_finite_differences(data):
    run = make_run(MODEL, Plan(epochs=1, batch_size=15, optimizer="sgd", metrics=()))

    def last_loss(rate):
        return run(jax.random.key(0), Hyper(learning_rate=rate), data)[1]["train_loss"][0]

    derivative = jax.jvp(last_loss, (0.05,), (1.0,))[1]
    around = (last_loss(0.051) - last_loss(0.049)) / 0.002
    np.testing.assert_allclose(derivative, around, rtol=0.02)


@pytest.mark.parametrize("cuts", [[5], [1, 4], [2, 2, 1], [1, 1, 1, 1, 1]])
def test_segments_give_the_bits_of_the_whole_epoch_however_they_are_cut(data, cuts):
    step, batches = parts()
    whole, info = jax.jit(partial(epoch, step, batches, True))(begin(data), data, jnp.int32(0))
    state, order = begin(data), epoch_order(jax.random.key(0), 0, 45)
    run_segment = jax.jit(partial(segment, step, batches))
    first, losses = 0, []
    for count in cuts:
        numbers = map(jnp.int32, (0, first, count))
        state, rows = run_segment(state, data, order, *numbers)
        losses += rows["loss"].total[:count].tolist()
        first += count
    last = jax.jit(partial(straight, step, batches.short, 1))
    state, rows = last(state, data, order, jnp.int32(40), jnp.int32(5))
    losses += rows["loss"].total.tolist()
    assert state_hash(state) == state_hash(whole)
    assert losses == info["loss"].total.tolist()


def test_unrolled_steps_are_single_steps(data):
    step, batches = parts()
    order = epoch_order(jax.random.key(0), 0, 45)
    block = jax.jit(partial(straight, step, batches.size, 4))
    single = jax.jit(partial(straight, step, batches.size, 1))
    unrolled, rows = block(begin(data), data, order, jnp.int32(0), jnp.int32(0))
    state = begin(data)
    for i in range(4):
        state, row = single(state, data, order, jnp.int32(8 * i), jnp.int32(i))
        np.testing.assert_allclose(row["loss"].total[0], rows["loss"].total[i], rtol=1e-6)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), unrolled.params, state.params
    )


def test_after_a_loss_that_is_not_finite_the_state_stands_still(data):
    spoilt = Data(data.x.at[20].set(jnp.inf), data.y)
    step, batches = parts()
    order = jnp.arange(45, dtype=jnp.int32)
    state, rows = jax.jit(partial(segment, step, batches))(
        begin(spoilt), spoilt, order, *map(jnp.int32, (0, 0, 5))
    )
    finite = np.isfinite(np.asarray(rows["loss"].total))
    assert finite.tolist() == [True, True, False, True, True]
    assert state.step == 2
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    again, _ = advance(step, 8, state, spoilt, order, jnp.int32(24), jnp.int32(3))
    assert state_hash((again.step, again.params)) == state_hash((state.step, state.params))


def test_a_run_needs_no_short_batch_and_no_full_one(data):
    for size, steps in ((45, 1), (9, 5), (100, 1)):
        state, history = jax.jit(make_run(MODEL, Plan(epochs=1, batch_size=size)))(
            jax.random.key(0), Hyper(), data
        )
        assert state.step == steps
        assert history["step_loss"].shape == (1, steps)


def test_the_rule_for_the_mode_looks_for_convolutions():
    images = jax.ShapeDtypeStruct((2, 8, 8), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def forward(model):
        def call(key, images):
            variables = model.init(key, images)
            return jax.lax.cond(
                True,
                lambda: model.apply(variables, images, key=key, train=True)[0],
                lambda: jnp.zeros((2, 3)),
            )

        return call

    assert choose_mode(forward(mlp(4, outputs=3)), "cpu", key, images) == "scan"
    assert choose_mode(forward(cnn(4, outputs=3)), "cpu", key, images) == "unroll"
    assert choose_mode(forward(cnn(4, outputs=3)), "gpu", key, images) == "scan"
