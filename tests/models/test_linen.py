import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from purefit.core.run import make_run
from purefit.core.settings import Hyper, Plan
from purefit.core.types import Data
from purefit.errors import ModelError
from purefit.models.linen import from_linen


class Net(nn.Module):
    width: int = 16
    rate: float = 0.2

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Dense(self.width)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.Dropout(self.rate, deterministic=not train)(nn.relu(x))
        return nn.Dense(3)(x)


class Norm(nn.Module):
    @nn.compact
    def __call__(self, x, use_running_average):
        return nn.BatchNorm(use_running_average, momentum=0.9, epsilon=0.0)(x)


class Drop(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic: bool = True):
        return nn.Dropout(0.25)(x, deterministic=deterministic)


def variables_of(model, inputs, seed=0):
    return model.init(jax.random.key(seed), inputs)


@pytest.mark.parametrize("rows", [8, 3])
def test_batch_norm_statistics_are_numpys(rows):
    x = np.random.default_rng(rows).normal(2.0, 3.0, (rows, 4)).astype(np.float32)
    model = from_linen(Norm())
    variables = variables_of(model, x)
    outputs, state = model.apply(variables, x, key=jax.random.key(0), train=True)
    stats = state["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(stats["mean"], 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(stats["var"], 0.9 + 0.1 * x.var(0), rtol=1e-5)
    expected = (x - x.mean(0)) / np.sqrt(x.var(0))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_evaluation_uses_the_statistics_and_leaves_them():
    x = jnp.full((2, 4), 5.0)
    model = from_linen(Norm())
    variables = variables_of(model, x)
    stats = {"mean": jnp.full(4, 1.0), "var": jnp.full(4, 4.0)}
    variables = variables._replace(state={"batch_stats": {"BatchNorm_0": stats}})
    outputs, state = model.apply(variables, x, key=jax.random.key(0), train=False)
    np.testing.assert_allclose(outputs, 2.0, rtol=1e-6)
    assert state is variables.state


def test_dropout_masks_come_from_the_key():
    x = jnp.ones((100, 40))
    model = from_linen(Drop())
    variables = variables_of(model, x)
    assert variables.params == {}
    assert variables.state == {}

    def masked(seed):
        return model.apply(variables, x, key=jax.random.key(seed), train=True)[0]

    np.testing.assert_array_equal(masked(1), masked(1))
    assert not np.array_equal(masked(1), masked(2))
    np.testing.assert_allclose(np.unique(masked(1)), [0.0, 1 / 0.75], rtol=1e-6)
    assert abs(float((masked(1) > 0).mean()) - 0.75) < 0.03
    np.testing.assert_array_equal(
        model.apply(variables, x, key=jax.random.key(1), train=False)[0], x
    )


class Streams(nn.Module):
    names: tuple[str, ...]

    @nn.compact
    def __call__(self, x):
        drawn = [jax.random.normal(self.make_rng(name), x.shape) for name in self.names]
        return jnp.stack(drawn)


def test_each_named_stream_has_its_own_key():
    model = from_linen(Streams(("dropout", "noise")), rngs=("dropout", "noise"))
    x = jnp.zeros((2, 3))
    variables = variables_of(model, x)
    outputs, _ = model.apply(variables, x, key=jax.random.key(0), train=True)
    assert not np.array_equal(outputs[0], outputs[1])


@pytest.mark.parametrize(
    "flag", ["train", "training", "is_training", "deterministic", "use_running_average"]
)
def test_every_flag_is_told_the_mode(flag):
    space = {"nn": nn}
    code = f"lambda self, x, *, {flag}: x * 0 + (1.0 if {flag} else 0.0)"
    told = type("Told", (nn.Module,), {"__call__": eval(code, space)})()
    model = from_linen(told)
    x = jnp.ones((1, 1))
    variables = variables_of(model, x)
    inverted = flag in ("deterministic", "use_running_average")
    for train in (True, False):
        outputs, _ = model.apply(variables, x, key=jax.random.key(0), train=train)
        assert bool(outputs[0, 0]) == (train != inverted)


def test_init_is_linens_own_and_can_be_traced():
    x = jnp.ones((2, 5))
    model = from_linen(Net())
    made = variables_of(model, x)
    key = jax.random.fold_in(jax.random.key(0), 0)
    own = Net().init({"params": key}, x, train=False)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), made.params, own["params"]))
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    assert jax.tree.structure(shapes) == jax.tree.structure(made)


def test_trains(trains):
    state, _ = trains(from_linen(Net()))
    assert set(state.model_state) == {"batch_stats"}
    assert set(state.params) == {"Dense_0", "BatchNorm_0", "Dense_1"}


def test_statistics_follow_every_batch_of_a_run_the_short_one_too():
    x = np.random.default_rng(1).normal(size=(10, 3)).astype(np.float32)
    plan = Plan(epochs=1, batch_size=4, shuffle=False, optimizer="sgd", loss="mean_squared_error")
    run = jax.jit(make_run(from_linen(Norm()), plan))
    state, _ = run(jax.random.key(0), Hyper(), Data(jnp.asarray(x), jnp.zeros((10, 3))))
    mean, var = np.zeros(3), np.ones(3)
    for rows in (x[:4], x[4:8], x[8:]):
        mean = 0.9 * mean + 0.1 * rows.mean(0)
        var = 0.9 * var + 0.1 * rows.var(0)
    stats = state.model_state["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(stats["mean"], mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(stats["var"], var, rtol=1e-5)


def test_inputs_may_be_any_pytree(trains, blobs):
    class Both(nn.Module):
        @nn.compact
        def __call__(self, inputs):
            return nn.Dense(3)(inputs["left"]) + nn.Dense(3)(inputs["right"])

    x = {"left": blobs.x[:, :1], "right": blobs.x[:, 1:]}
    trains(from_linen(Both()), Data(x, blobs.y))


def test_a_low_precision_state_keeps_its_dtype():
    class Average(nn.Module):
        @nn.compact
        def __call__(self, x):
            average = self.variable("averages", "mean", jnp.zeros, (), jnp.bfloat16)
            if not self.is_initializing() and self.is_mutable_collection("averages"):
                average.value = x.mean()
            return x

    model = from_linen(Average())
    x = jnp.ones((2, 2))
    variables = variables_of(model, x)
    _, state = model.apply(variables, x, key=jax.random.key(0), train=True)
    assert state["averages"]["mean"].dtype == jnp.bfloat16
    assert float(state["averages"]["mean"]) == 1.0


def test_equal_modules_are_equal_models():
    assert from_linen(Net(8)) == from_linen(Net(8))
    assert hash(from_linen(Net(8))) == hash(from_linen(Net(8)))
    assert from_linen(Net(8)) != from_linen(Net(9))
    assert from_linen(Net(8)) != from_linen(Net(8), rngs=("noise",))


def test_a_module_without_a_hash_is_known_by_identity():
    module = nn.Sequential([nn.Dense(3), nn.relu])
    model = from_linen(module)
    assert hash(model) == hash(model)
    assert len({model, model}) == 1
    assert model != from_linen(module)


def test_bad_modules_are_refused():
    with pytest.raises(ModelError, match=r"instance of flax\.linen\.Module, got Net; call"):
        from_linen(Net)
    with pytest.raises(ModelError, match="got int"):
        from_linen(3)

    class Mute(nn.Module):
        pass

    with pytest.raises(ModelError, match="Mute without one"):
        from_linen(Mute())
