"""Optimizers and schedules, against Optax with static settings and against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from purefit.core.optimizers import make_optimizer, make_schedule
from purefit.core.settings import Hyper, Plan, resolve

PARAMS = {"w": jnp.array([[1.0, -2.0], [0.5, 3.0]]), "b": jnp.array([0.25, -1.0])}
GRADS = [
    {"w": jnp.array([[0.3, -0.1], [2.0, 0.0]]), "b": jnp.array([1.0, -0.5])},
    {"w": jnp.array([[-0.2, 0.4], [0.1, 0.9]]), "b": jnp.array([0.0, 0.7])},
    {"w": jnp.array([[1.5, 0.2], [-0.3, 0.4]]), "b": jnp.array([-0.6, 0.1])},
]


def after(optimizer):
    params, state = PARAMS, optimizer.init(PARAMS)
    for grads in GRADS:
        with jax.numpy_dtype_promotion("standard"):  # Optax's Adam raises a float to an integer
            updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params


def ours(hyper, **plan):
    plan = Plan(**plan)
    return after(make_optimizer(plan, resolve(hyper, plan), 10))


def same(left, right, rtol=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), left, right)


def adam_in_float64(rate, b1, b2, eps):
    """Follow the algorithm of Kingma and Ba in double precision."""
    params = {name: np.asarray(leaf, np.float64) for name, leaf in PARAMS.items()}
    for name in params:
        m = v = 0.0
        for t, grads in enumerate(GRADS, start=1):
            g = np.asarray(grads[name], np.float64)
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            params[name] -= rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return params


@pytest.mark.parametrize(("b1", "b2", "eps"), [(0.9, 0.999, 1e-8), (0.8, 0.95, 1e-3), (0, 0, 1)])
def test_adam_is_the_papers(b1, b2, eps):
    mine = ours(Hyper(learning_rate=0.1, b1=b1, b2=b2, eps=eps))
    same(mine, adam_in_float64(0.1, b1, b2, eps), rtol=2e-6)


def test_adam_is_optaxs_up_to_its_rounding():
    same(ours(Hyper(learning_rate=0.1)), after(optax.adam(0.1)), rtol=1e-4)


def test_adams_first_step_is_the_learning_rate_times_the_sign():
    optimizer = make_optimizer(Plan(), resolve(Hyper(learning_rate=0.1), Plan()), 10)
    updates, _ = optimizer.update(GRADS[0], optimizer.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["b"], [-0.1, 0.1], rtol=1e-4)


def test_adamw_decays_matrices_and_not_biases():
    mask = {"w": True, "b": False}
    same(
        ours(Hyper(learning_rate=0.1, weight_decay=0.5), optimizer="adamw"),
        after(optax.adamw(0.1, weight_decay=0.5, mask=mask)),
        rtol=1e-4,
    )


def test_sgd_is_plain_and_momentum_is_heavy_ball():
    plain = ours(Hyper(learning_rate=0.1), optimizer="sgd")
    total = jax.tree.map(lambda *g: sum(g), *GRADS)
    same(plain, jax.tree.map(lambda p, g: p - 0.1 * g, PARAMS, total))
    same(
        ours(Hyper(learning_rate=0.1, momentum=0.9), optimizer="sgd"),
        after(optax.sgd(0.1, momentum=0.9)),
    )


def test_clipping_comes_before_the_optimizer():
    same(
        ours(Hyper(learning_rate=0.1, clip_norm=0.5)),
        after(optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.1))),
        rtol=1e-4,
    )
    clipped = ours(Hyper(learning_rate=1.0, clip_norm=1e-3), optimizer="sgd")
    moved = jax.tree.map(lambda a, b: a - b, clipped, PARAMS)
    assert float(optax.tree.norm(moved)) <= 3.0001e-3


def test_a_transformation_of_the_users_is_taken_as_it_is():
    same(ours(Hyper(), optimizer=optax.lion(0.01)), after(optax.lion(0.01)))


def test_a_function_of_the_users_gets_hyper_and_the_number_of_steps():
    def build(hyper, total_steps):
        return optax.sgd(hyper.learning_rate * total_steps)

    same(ours(Hyper(learning_rate=0.01), optimizer=build), after(optax.sgd(0.1)))


@pytest.mark.parametrize(
    ("warmup", "final", "total"), [(0.1, 0.0, 100), (0.0, 0.1, 50), (0.5, 0.3, 8)]
)
def test_warmup_cosine_is_optaxs(warmup, final, total):
    hyper = Hyper(learning_rate=0.3, warmup=warmup, final_scale=final)
    schedule = make_schedule("warmup_cosine", hyper, total)
    expected = optax.warmup_cosine_decay_schedule(
        0.0, 0.3, int(warmup * total), total, end_value=0.3 * final
    )
    for step in range(total + 1):
        assert float(schedule(jnp.int32(step))) == pytest.approx(float(expected(step)), abs=1e-6)


def test_hyperparameters_can_be_mapped_over():
    plan = Plan(schedule="warmup_cosine")

    def end(rate, warmup):
        hyper = resolve(Hyper(learning_rate=rate, warmup=warmup, clip_norm=rate), plan)
        return after(make_optimizer(plan, hyper, 10))["w"]

    rates, warmups = jnp.array([0.1, 0.2]), jnp.array([0.0, 0.5])
    with jax.numpy_dtype_promotion("standard"):
        mapped = jax.vmap(end)(rates, warmups)
        for lane in range(2):
            np.testing.assert_allclose(mapped[lane], end(rates[lane], warmups[lane]), rtol=1e-6)
