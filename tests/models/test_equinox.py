from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.types import Data, Variables
from purefit.errors import ModelError
from purefit.models.equinox import from_equinox


class Net(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key, axis="points"):
        one, two = jax.random.split(key)
        self.first = eqx.nn.Linear(2, 16, key=one)
        self.norm = eqx.nn.BatchNorm(16, axis, mode="batch", momentum=0.9)
        self.dropout = eqx.nn.Dropout(0.2)
        self.last = eqx.nn.Linear(16, 3, key=two)

    def __call__(self, x, state, *, key):
        x, state = self.norm(self.first(x), state)
        return self.last(self.dropout(jax.nn.relu(x), key=key)), state


class Drop(eqx.Module):
    dropout: eqx.nn.Dropout = eqx.nn.Dropout(0.25)

    def __call__(self, x, key):
        return self.dropout(x, key=key)


def net(key):
    return eqx.nn.make_with_state(Net)(key)


def mlp(key):
    return eqx.nn.MLP(2, 3, 16, 1, key=key)


def norm(key, mode="batch"):
    return eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "batch", momentum=0.9, eps=0.0, mode=mode)


def same(left, right):
    return jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), left, right))


def numbers(rows):
    return np.random.default_rng(rows).normal(2.0, 3.0, (rows, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", [8, 3])
def test_batch_norm_statistics_are_numpys(rows):
    x = numbers(rows)
    model = from_equinox(norm)
    variables = model.init(jax.random.key(0), x)
    outputs, state = model.apply(variables, x, key=jax.random.key(0), train=True)
    expected = (x - x.mean(0)) / np.sqrt(x.var(0))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)
    counter, mean, var = state.values()
    assert int(counter) == 1
    np.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(var, 0.9 + 0.1 * x.var(0), rtol=1e-5)


@pytest.mark.parametrize("rows", [8, 3])
def test_moving_batch_norm_starts_with_the_first_batch(rows):
    x = numbers(rows)
    model = from_equinox(partial(norm, mode="ema"))
    variables = model.init(jax.random.key(0), x)
    _, state = model.apply(variables, x, key=jax.random.key(0), train=True)
    first, mean, var = state.values()
    assert not bool(first)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(var, x.var(0), rtol=1e-5)


def test_evaluation_uses_the_statistics_and_leaves_them():
    x = jnp.full((2, 4), 5.0)
    model = from_equinox(partial(norm, mode="ema"))
    variables = model.init(jax.random.key(0), x)
    stats = [jnp.array(False), jnp.full(4, 1.0), jnp.full(4, 4.0)]
    state = dict(zip(variables.state, stats, strict=True))
    outputs, after = model.apply(
        Variables(variables.params, state), x, key=jax.random.key(0), train=False
    )
    np.testing.assert_allclose(outputs, 2.0, rtol=1e-6)
    assert after is state


def test_dropout_masks_come_from_the_key_one_for_each_example():
    x = jnp.ones((100, 40))
    model = from_equinox(Drop())
    variables = model.init(jax.random.key(0), x)
    assert variables == Variables({}, {})
    masked = jax.jit(lambda key: model.apply(variables, x, key=key, train=True)[0])
    one = masked(jax.random.key(1))
    np.testing.assert_array_equal(one, masked(jax.random.key(1)))
    assert not np.array_equal(one, masked(jax.random.key(2)))
    assert len(np.unique(one, axis=0)) == 100
    np.testing.assert_allclose(np.unique(one), [0.0, 1 / 0.75], rtol=1e-6)
    assert abs(float((one > 0).mean()) - 0.75) < 0.03
    kept, _ = model.apply(variables, x, key=jax.random.key(1), train=False)
    np.testing.assert_array_equal(kept, x)


def test_outputs_are_the_modules_own_example_by_example():
    model = from_equinox(mlp)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
    variables = jax.jit(model.init)(jax.random.key(3), x)
    outputs, _ = model.apply(variables, x, key=jax.random.key(0), train=True)
    own = mlp(jax.random.key(3))
    np.testing.assert_allclose(outputs, jnp.stack([own(row) for row in x]), rtol=1e-5, atol=1e-6)
    assert set(variables.params) == {
        f"layers.{number}.{leaf}" for number in (0, 1) for leaf in ("weight", "bias")
    }


def test_only_floating_arrays_are_trained():
    class Mixed(eqx.Module):
        weight: jax.Array
        table: jax.Array
        constant: np.ndarray
        scale: float

        def __call__(self, x):
            return self.weight * x[self.table] * self.scale

    mixed = Mixed(jnp.ones(2), jnp.array([1, 0]), np.array([7]), 2.0)
    for model in (from_equinox(mixed), from_equinox(lambda key: mixed)):
        x = jnp.array([[3.0, 4.0]])
        variables = model.init(jax.random.key(0), x)
        assert set(variables.params) == {"weight"}
        assert set(variables.state) == {"module.table", "module.constant"}
        outputs, state = model.apply(variables, x, key=jax.random.key(0), train=True)
        np.testing.assert_array_equal(outputs, [[8.0, 6.0]])
        assert same(state, variables.state)


def test_a_factory_draws_from_the_runs_key_and_an_instance_does_not():
    x = jnp.ones((2, 2))
    drawn = from_equinox(mlp)
    assert not same(drawn.init(jax.random.key(0), x), drawn.init(jax.random.key(1), x))
    module = mlp(jax.random.key(5))
    given = from_equinox(module)
    one = given.init(jax.random.key(0), x)
    assert same(one, given.init(jax.random.key(1), x))
    np.testing.assert_array_equal(one.params["layers.0.weight"], module.layers[0].weight)


def test_start_can_be_donated_without_taking_the_users_weights():
    module = mlp(jax.random.key(5))
    variables = from_equinox(module).init(jax.random.key(0), jnp.ones((2, 2)))
    jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(variables)
    assert np.isfinite(module(jnp.ones(2))).all()


def test_a_pair_can_be_used_by_its_owner_too(trains):
    module, state = net(jax.random.key(0))
    model = from_equinox((module, state))
    index = module.norm.batch_counter
    state.set(index, jnp.array(9))
    finished, _ = trains(model)
    assert int(next(iter(finished.model_state.values()))) == 16


@pytest.mark.parametrize("make", [net, mlp])
def test_trains(trains, make):
    trains(from_equinox(make))


def test_statistics_are_in_the_state_and_scales_are_trained(trains):
    finished, _ = trains(from_equinox(net))
    assert len(finished.model_state) == 3
    assert all(name.startswith("state.") for name in finished.model_state)
    assert {"norm.weight", "norm.bias"} < set(finished.params)
    assert float(jnp.abs(finished.params["norm.bias"]).max()) > 0


@pytest.mark.parametrize("stateful", [True, False])
def test_sequential(trains, stateful):
    def make(key):
        one, two = jax.random.split(key)
        middle = [eqx.nn.BatchNorm(8, "batch", mode="batch")] if stateful else []
        return eqx.nn.Sequential(
            [
                eqx.nn.Linear(2, 8, key=one),
                *middle,
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.Linear(8, 3, key=two),
            ]
        )

    trains(from_equinox(eqx.nn.make_with_state(make) if stateful else make))


def test_inputs_may_be_any_pytree(trains, blobs):
    class Both(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, inputs):
            return self.layer(jnp.concatenate([inputs["left"], inputs["right"]]))

    x = {"left": blobs.x[:, :1], "right": blobs.x[:, 1:]}
    trains(from_equinox(lambda key: Both(eqx.nn.Linear(2, 3, key=key))), Data(x, blobs.y))


def test_variables_go_back_into_the_users_class():
    model = from_equinox(net)
    x = jnp.ones((3, 2))
    variables = model.init(jax.random.key(0), x)
    module, state = model.module(variables)
    assert isinstance(module, Net)
    assert isinstance(state, eqx.nn.State)
    outputs, _ = model.apply(variables, x, key=jax.random.key(0), train=False)
    own = eqx.nn.inference_mode(module)(x[0], state, key=jax.random.key(0))[0]
    np.testing.assert_allclose(outputs[0], own, rtol=1e-5)


def test_models_are_known_by_their_factory():
    assert from_equinox(net) == from_equinox(net)
    assert hash(from_equinox(net)) == hash(from_equinox(net))
    assert from_equinox(net) != from_equinox(mlp)
    module = mlp(jax.random.key(0))
    assert from_equinox(module) != from_equinox(module)


def test_a_stateful_module_needs_its_state():
    with pytest.raises(ModelError, match=r"got Net alone; make both with eqx\.nn\.make_with_state"):
        from_equinox(Net)


def test_bad_modules_are_refused():
    with pytest.raises(ModelError, match="got int"):
        from_equinox(3)
    with pytest.raises(ModelError, match="one that makes dict; return the module"):
        from_equinox(lambda key: {})

    class Mute(eqx.Module):
        pass

    with pytest.raises(ModelError, match="got Mute without one"):
        from_equinox(Mute())


def test_two_axis_names_are_refused():
    class Two(eqx.Module):
        norms: list[eqx.nn.BatchNorm]

        def __call__(self, x, state):
            return x, state

    def make(key):
        return Two([eqx.nn.BatchNorm(2, axis, mode="batch") for axis in ("a", "b")])

    with pytest.raises(ModelError, match="got a, b; give them the same"):
        from_equinox(eqx.nn.make_with_state(make))


def test_a_stateful_call_must_take_and_return_the_state():
    class Without(eqx.Module):
        norm: eqx.nn.BatchNorm

        def __call__(self, x, context):
            return self.norm(x, context)

    class Forgets(eqx.Module):
        norm: eqx.nn.BatchNorm

        def __call__(self, x, state):
            return self.norm(x, state)[0]

    layer = partial(eqx.nn.BatchNorm, 2, "batch", mode="batch")
    with pytest.raises(ModelError, match="an argument named state"):
        from_equinox(eqx.nn.make_with_state(lambda: Without(layer()))())
    model = from_equinox(eqx.nn.make_with_state(lambda: Forgets(layer()))())
    x = jnp.ones((3, 2))
    variables = model.init(jax.random.key(0), x)
    with pytest.raises(ModelError, match=r"to return \(output, state\)"):
        model.apply(variables, x, key=jax.random.key(0), train=True)
