import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from purefit.core.types import Data, Variables
from purefit.errors import ModelError
from purefit.models.nnx import from_nnx


class Net(nnx.Module):
    def __init__(self, rngs, width=16, rate=0.2):
        self.layers = nnx.List([nnx.Linear(2, width, rngs=rngs), nnx.Linear(width, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x):
        first, last = self.layers
        return last(self.dropout(nnx.relu(self.norm(first(x)))))


class Norm(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(4, momentum=0.9, epsilon=0.0, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


class Drop(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Dropout(0.25, rngs=rngs)
        self.second = nnx.Dropout(0.25, rngs=rngs)

    def __call__(self, x):
        return jnp.stack([self.first(x), self.second(x)])


def same(left, right):
    return jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), left, right))


@pytest.mark.parametrize("rows", [8, 3])
def test_batch_norm_statistics_are_numpys(rows):
    x = np.random.default_rng(rows).normal(2.0, 3.0, (rows, 4)).astype(np.float32)
    model = from_nnx(Norm)
    variables = model.init(jax.random.key(0), x)
    outputs, state = model.apply(variables, x, key=jax.random.key(0), train=True)
    assert set(state) == {"norm.mean", "norm.var"}
    np.testing.assert_allclose(state["norm.mean"], 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(state["norm.var"], 0.9 + 0.1 * x.var(0), rtol=1e-5)
    expected = (x - x.mean(0)) / np.sqrt(x.var(0))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_evaluation_uses_the_statistics_and_leaves_them():
    x = jnp.full((2, 4), 5.0)
    model = from_nnx(Norm)
    variables = model.init(jax.random.key(0), x)
    stats = {"norm.mean": jnp.full(4, 1.0), "norm.var": jnp.full(4, 4.0)}
    outputs, state = model.apply(
        Variables(variables.params, stats), x, key=jax.random.key(0), train=False
    )
    np.testing.assert_allclose(outputs, 2.0, rtol=1e-6)
    assert state is stats


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_dropout_masks_come_from_the_key(wrap):
    x = jnp.ones((100, 40))
    model = from_nnx(Drop)
    variables = model.init(jax.random.key(0), x)
    assert variables == Variables({}, {})
    masked = wrap(lambda key: model.apply(variables, x, key=key, train=True)[0])
    one, two = masked(jax.random.key(1)), masked(jax.random.key(2))
    np.testing.assert_array_equal(one, masked(jax.random.key(1)))
    assert not np.array_equal(one, two)
    assert not np.array_equal(one[0], one[1])
    np.testing.assert_allclose(np.unique(one), [0.0, 1 / 0.75], rtol=1e-6)
    assert abs(float((one > 0).mean()) - 0.75) < 0.02
    kept, _ = model.apply(variables, x, key=jax.random.key(1), train=False)
    np.testing.assert_array_equal(kept, jnp.stack([x, x]))


def test_uses_of_one_stream_differ():
    class Twice(nnx.Module):
        def __init__(self, rngs):
            self.rngs = rngs

        def __call__(self, x):
            return jnp.stack([jax.random.normal(self.rngs.noise(), x.shape) for _ in range(2)])

    model = from_nnx(Twice)
    x = jnp.ones((2, 2))
    outputs, state = model.apply(Variables({}, {}), x, key=jax.random.key(0), train=True)
    assert not np.array_equal(outputs[0], outputs[1])
    assert state == {}


def test_split_streams_get_a_key_for_each_place():
    class Split(nnx.Module):
        def __init__(self, rngs):
            self.stream = rngs.dropout.split(3)

        def __call__(self, x):
            return jax.random.key_data(self.stream.key[...])

    model = from_nnx(Split)
    keys, _ = model.apply(Variables({}, {}), jnp.ones(1), key=jax.random.key(0), train=True)
    assert len(np.unique(keys, axis=0)) == 3


def test_a_factory_draws_from_the_runs_key():
    model = from_nnx(lambda rngs: Net(rngs, width=16))
    x = jnp.ones((2, 2))
    made = jax.jit(model.init)(jax.random.key(3), x)
    own = Net(nnx.Rngs(jax.random.key(3)))
    np.testing.assert_array_equal(made.params["layers.0.kernel"], own.layers[0].kernel[...])
    other = model.init(jax.random.key(4), x)
    assert not same(made.params, other.params)


def test_an_instance_starts_from_its_own_weights_and_is_not_changed(trains):
    module = Net(nnx.Rngs(5))
    before = jax.tree.map(lambda leaf: leaf, nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    kernel = np.asarray(module.layers[0].kernel[...])
    model = from_nnx(module)
    x = jnp.ones((2, 2))
    one, two = (model.init(jax.random.key(seed), x) for seed in (0, 1))
    assert same(one, two)
    np.testing.assert_array_equal(one.params["layers.0.kernel"], kernel)
    trains(model)
    assert same(before, nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    np.testing.assert_array_equal(module.norm.mean[...], 0.0)
    assert int(module.dropout.rngs.count[...]) == 0
    assert module.dropout.deterministic is False
    module.layers[0].kernel[...] = jnp.zeros((2, 16))
    assert same(model.init(jax.random.key(0), x), one)


def test_start_can_be_donated_without_taking_the_users_weights():
    module = Net(nnx.Rngs(5))
    model = from_nnx(module)
    for _ in range(2):
        variables = model.init(jax.random.key(0), jnp.ones((2, 2)))
        jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(variables)
    assert np.isfinite(module(jnp.ones((2, 2)))).all()


def test_state_fits_a_loop():
    model = from_nnx(Net)
    x = jnp.ones((4, 2))
    variables = model.init(jax.random.key(0), x)

    def body(i, state):
        key = jax.random.fold_in(jax.random.key(0), i)
        return model.apply(Variables(variables.params, state), x, key=key, train=True)[1]

    after = jax.jit(lambda state: jax.lax.fori_loop(0, 3, body, state))(variables.state)
    assert jax.tree.structure(after) == jax.tree.structure(variables.state)
    assert not same(after, variables.state)


def test_trains(trains):
    state, _ = trains(from_nnx(Net))
    assert set(state.model_state) == {"norm.mean", "norm.var"}
    assert set(state.params) == {
        *(f"layers.{number}.{leaf}" for number in (0, 1) for leaf in ("kernel", "bias")),
        "norm.scale",
        "norm.bias",
    }


def test_what_a_call_adds_is_not_carried(trains):
    class Noter(nnx.Module):
        def __init__(self, rngs):
            self.layer = nnx.Linear(2, 3, rngs=rngs)

        def __call__(self, x):
            y = self.layer(x)
            self.seen = nnx.Intermediate(y)
            return y

    state, _ = trains(from_nnx(Noter))
    assert state.model_state == {}


def test_tied_weights_are_one_leaf():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.one = nnx.Linear(2, 2, rngs=rngs)
            self.two = nnx.Linear(2, 2, rngs=rngs)
            self.two.kernel = self.one.kernel

        def __call__(self, x):
            return self.two(self.one(x))

    model = from_nnx(Tied)
    x = jnp.ones((1, 2))
    variables = model.init(jax.random.key(0), x)
    assert len(variables.params) == 3
    params = {
        name: jnp.eye(2) * 3 if "kernel" in name else leaf
        for name, leaf in variables.params.items()
    }
    outputs, _ = model.apply(Variables(params, {}), x, key=jax.random.key(0), train=True)
    np.testing.assert_array_equal(outputs, 9.0)


def test_a_call_with_a_flag_is_told_the_mode():
    class Told(nnx.Module):
        def __call__(self, x, *, train):
            return x if train else -x

    model = from_nnx(Told())
    x = jnp.ones((1, 1))
    for train in (True, False):
        outputs, _ = model.apply(Variables({}, {}), x, key=jax.random.key(0), train=train)
        assert float(outputs[0, 0]) == (1.0 if train else -1.0)


def test_inputs_may_be_any_pytree(trains, blobs):
    class Both(nnx.Module):
        def __init__(self, rngs):
            self.layer = nnx.Linear(2, 3, rngs=rngs)

        def __call__(self, inputs):
            return self.layer(jnp.concatenate(inputs, axis=1))

    trains(from_nnx(Both), Data((blobs.x[:, :1], blobs.x[:, 1:]), blobs.y))


def test_variables_go_back_into_the_users_class():
    model = from_nnx(Net)
    x = jnp.ones((3, 2))
    variables = model.init(jax.random.key(0), x)
    module = model.module(variables, jax.random.key(0))
    assert isinstance(module, Net)
    module.eval()
    outputs, _ = model.apply(variables, x, key=jax.random.key(0), train=False)
    np.testing.assert_array_equal(module(x), outputs)


def test_bare_arrays_of_an_instance_are_constants():
    class Bare(nnx.Module):
        def __init__(self):
            self.table = jnp.arange(3.0)[None]

        def __call__(self, x):
            return x + self.table

    model = from_nnx(Bare())
    x = jnp.ones((1, 3))
    variables = model.init(jax.random.key(0), x)
    outputs, state = jax.jit(lambda v: model.apply(v, x, key=jax.random.key(0), train=True))(
        variables
    )
    np.testing.assert_array_equal(outputs, [[1.0, 2.0, 3.0]])
    assert set(state) == {"table"}


def test_models_are_known_by_their_factory():
    def factory(rngs):
        return Net(rngs)

    assert from_nnx(factory) == from_nnx(factory)
    assert hash(from_nnx(factory)) == hash(from_nnx(factory))
    assert from_nnx(factory) != from_nnx(Net)
    module = Net(nnx.Rngs(0))
    assert from_nnx(module) != from_nnx(module)


def test_bad_modules_are_refused():
    with pytest.raises(ModelError, match="got int"):
        from_nnx(3)
    with pytest.raises(ModelError, match="one that makes dict; return the module"):
        from_nnx(lambda rngs: {})

    class Mute(nnx.Module):
        pass

    with pytest.raises(ModelError, match="makes Mute"):
        from_nnx(Mute())

    class Bare(nnx.Module):
        def __init__(self, rngs):
            self.table = jax.random.normal(rngs(), (3,))

        def __call__(self, x):
            return x

    with pytest.raises(ModelError, match="bare one as 'table'; wrap it"):
        from_nnx(Bare)
