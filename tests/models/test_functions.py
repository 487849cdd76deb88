import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.errors import ModelError
from purefit.models.functions import from_functions

X = jnp.array([[1.0, 2.0]])
KEY = jax.random.key(3)


def start(key):
    return {"w": jax.random.normal(key, (2, 3)) * 0.1}


def product(params, x):
    return x @ params["w"]


def outputs_of(apply, *, init=lambda key: jnp.float32(2.0), train=True, **traced):
    model = from_functions(init, apply)
    variables = model.init(KEY, X)
    outputs, state = model.apply(variables, X, key=KEY, train=train, **traced)
    assert state == variables.state == ()
    return outputs


def with_key(p, x, key):
    return jax.random.key_data(key)


def with_train(p, x, *, train):
    return x if train else -x


def with_all(p, x, train, dropout, key):
    return (train, dropout, jax.random.key_data(key))


def test_init_may_take_the_inputs():
    seen = []
    model = from_functions(lambda key, inputs: seen.append(inputs.shape) or {}, lambda p, x: x)
    assert model.init(KEY, X).params == {}
    assert seen == [(1, 2)]
    assert from_functions(start, product).init(KEY, X).params["w"].shape == (2, 3)


def test_a_default_of_init_stays_as_it_is():
    model = from_functions(lambda key, width=5: jnp.zeros(width), lambda p, x: p)
    assert model.init(KEY, X).params.shape == (5,)


def test_apply_is_handed_what_it_names():
    np.testing.assert_array_equal(outputs_of(lambda p, x: p * x), [[2.0, 4.0]])
    np.testing.assert_array_equal(outputs_of(with_key), jax.random.key_data(KEY))
    np.testing.assert_array_equal(outputs_of(with_train), X)
    np.testing.assert_array_equal(outputs_of(with_train, train=False), -X)
    train, rate, key = outputs_of(with_all, dropout=0.25)
    assert (train, rate) == (True, 0.25)
    np.testing.assert_array_equal(key, jax.random.key_data(KEY))


def test_names_of_the_first_two_arguments_are_free():
    np.testing.assert_array_equal(outputs_of(lambda weights, batch: batch), X)
    np.testing.assert_array_equal(outputs_of(lambda weights, batch, /, *, key: batch), X)


def test_other_arguments_keep_their_defaults():
    np.testing.assert_array_equal(outputs_of(lambda p, x, scale=3.0: scale * x), [[3.0, 6.0]])
    np.testing.assert_array_equal(outputs_of(lambda p, x, **rest: x + len(rest)), X)


def test_a_known_argument_is_handed_over_its_default():
    np.testing.assert_array_equal(outputs_of(lambda p, x, train=False: x if train else -x), X)


def test_hyperparameters_are_read_by_name():
    assert from_functions(start, product).reads == ()
    model = from_functions(start, with_all)
    assert model.reads == ("dropout",)
    assert from_functions(start, lambda p, x, dropout=0.1: x).reads == ("dropout",)


def test_trains(trains):
    trains(from_functions(start, product))


def test_dropout_of_ones_own_is_traced(trains):
    def apply(params, x, key, train, dropout):
        if train:
            x = x * jax.random.bernoulli(key, 1 - dropout, x.shape).astype(x.dtype)
        return product(params, x)

    trains(from_functions(start, apply), dropout=0.1)


def test_the_same_functions_are_the_same_model():
    assert from_functions(start, product) == from_functions(start, product)
    assert hash(from_functions(start, product)) == hash(from_functions(start, product))
    assert from_functions(start, product) != from_functions(start, with_all)


def test_bad_functions_are_refused():
    with pytest.raises(ModelError, match=r"no more than key, train or hyperparameters .*, got rng"):
        from_functions(start, lambda params, x, rng: x)
    with pytest.raises(ModelError, match=r"to take \(params, inputs\), got \(params\)"):
        from_functions(start, lambda params: params)
