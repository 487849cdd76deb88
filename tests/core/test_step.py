"""One step, against gradients and updates worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purefit.core.losses import cross_entropy, mean_squared_error
from purefit.core.metrics import accuracy
from purefit.core.state import TrainState
from purefit.core.step import make_step
from purefit.core.types import Data


def linear(variables, inputs, *, key, train):
    return inputs @ variables.params["w"], variables.state


def begin(params, optimizer):
    return TrainState(jnp.int32(0), jax.random.key(0), params, (), optimizer.init(params))


def test_a_step_of_sgd_on_a_linear_model_by_hand():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(5, 3)), rng.normal(size=(5, 2)), rng.normal(size=(3, 2))
    step = make_step(linear, mean_squared_error, {}, optax.sgd(0.1))
    state = begin({"w": jnp.float32(w)}, optax.sgd(0.1))
    after, info = step(state, Data(jnp.float32(x), jnp.float32(y)))
    residual = x @ w - y
    gradient = x.T @ (2 * residual / 2) / 5
    np.testing.assert_allclose(after.params["w"], w - 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(info["loss"].total, (residual**2).mean(axis=1).sum(), rtol=1e-5)
    assert info["loss"].count == 5
    assert after.step == 1


def test_info_is_that_of_the_parameters_before_the_update():
    step = make_step(linear, cross_entropy, {"accuracy": accuracy}, optax.sgd(100.0))
    state = begin({"w": jnp.eye(3)}, optax.sgd(100.0))
    batch = Data(10 * jnp.eye(3), jnp.array([0, 1, 0]))
    _, info = step(state, batch)
    assert info["accuracy"].total == 2
    assert info["accuracy"].count == 3


def test_each_step_has_a_key_of_its_own():
    keys = []

    def looking(variables, inputs, *, key, train):
        assert train is True
        keys.append(np.asarray(jax.random.key_data(key)).tolist())
        return inputs @ variables.params["w"], variables.state

    step = make_step(looking, mean_squared_error, {}, optax.sgd(0.1))
    state = begin({"w": jnp.ones((2, 1))}, optax.sgd(0.1))
    with jax.disable_jit():
        for _ in range(3):
            state, _ = step(state, Data(jnp.ones((4, 2)), jnp.ones((4, 1))))
    assert len({str(key) for key in keys}) == 3


def test_the_models_state_is_carried_on():
    def counting(variables, inputs, *, key, train):
        return inputs @ variables.params["w"], variables.state + inputs.shape[0]

    step = make_step(counting, mean_squared_error, {}, optax.sgd(0.1))
    params = {"w": jnp.ones((2, 1))}
    state = begin(params, optax.sgd(0.1))
    state = TrainState(state.step, state.key, state.params, jnp.int32(0), state.opt_state)
    for size in (4, 3):
        state, _ = step(state, Data(jnp.ones((size, 2)), jnp.ones((size, 1))))
    assert state.model_state == 7
