import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purefit.core.losses import find_loss
from purefit.models.mlp import mlp, mlp_forward, mlp_init


@settings(max_examples=8, deadline=None)
@given(
    widths=st.lists(st.integers(1, 7), min_size=2, max_size=6),
    rows=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_forward_is_numpys_for_any_depth(widths, rows, seed):
    params = mlp_init(jax.random.key(seed), tuple(widths))
    rng = np.random.default_rng(seed)
    params = [
        {"w": layer["w"], "b": jnp.asarray(rng.normal(size=layer["b"].shape), jnp.float32)}
        for layer in params
    ]
    x = rng.normal(size=(rows, widths[0])).astype(np.float32)
    expected = x.astype(np.float64)
    for number, layer in enumerate(params):
        expected = expected @ np.asarray(layer["w"], np.float64) + np.asarray(layer["b"])
        if number < len(params) - 1:
            expected = np.maximum(expected, 0)
    outputs = mlp_forward(params, jnp.asarray(x), jax.random.key(0))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_images_are_flattened_row_by_row():
    images = jax.random.uniform(jax.random.key(0), (2, 3, 4))
    model = mlp(5, outputs=2)
    variables = model.init(jax.random.key(1), images)
    assert [layer["w"].shape for layer in variables.params] == [(12, 5), (5, 2)]
    flat, _ = model.apply(variables, images.reshape(2, 12), key=jax.random.key(0), train=False)
    outputs, state = model.apply(variables, images, key=jax.random.key(0), train=False)
    np.testing.assert_array_equal(outputs, flat)
    assert state == variables.state == ()


def test_every_layer_is_drawn_with_a_key_of_its_own():
    params = mlp_init(jax.random.key(0), (4, 4, 4))
    assert not np.array_equal(params[0]["w"], params[1]["w"])
    for layer, key in zip(params, jax.random.split(jax.random.key(0), 2), strict=True):
        drawn = np.asarray(jax.random.normal(key, (4, 4), jnp.float32))
        np.testing.assert_array_equal(layer["w"], drawn * np.float32(math.sqrt(2 / 4)))


def test_no_hidden_layer_is_a_linear_model():
    model = mlp(outputs=3)
    x = jnp.eye(4)
    variables = model.init(jax.random.key(0), x)
    outputs, _ = model.apply(variables, x, key=jax.random.key(0), train=True)
    np.testing.assert_allclose(outputs, variables.params[0]["w"], rtol=1e-6)


def test_the_first_loss_is_that_of_guessing():
    images = jax.random.uniform(jax.random.key(0), (256, 28, 28))
    labels = jax.random.randint(jax.random.key(1), (256,), 0, 10)
    model = mlp(256, 128, outputs=10)
    for seed in range(3):
        variables = model.init(jax.random.key(seed), images)
        outputs, _ = model.apply(variables, images, key=jax.random.key(0), train=False)
        loss = float(find_loss("cross_entropy")(outputs, labels).mean())
        assert abs(loss - math.log(10)) < 0.5, loss


def test_dropout_thins_out_hidden_layers_in_training_only():
    params = [
        {"w": jnp.ones((1, 1000)), "b": jnp.zeros(1000)},
        {"w": jnp.eye(1000), "b": jnp.zeros(1000)},
    ]
    model = mlp(1000, outputs=1000)
    variables = model.init(jax.random.key(0), jnp.ones((1, 1)))._replace(params=params)
    rate = jnp.float32(0.3)

    def masked(seed, train=True):
        key = jax.random.key(seed)
        return model.apply(variables, jnp.ones((4, 1)), key=key, train=train, dropout=rate)[0]

    np.testing.assert_allclose(np.unique(masked(0)), [0.0, 1 / 0.7], rtol=1e-6)
    assert abs(float((masked(0) > 0).mean()) - 0.7) < 0.03
    np.testing.assert_array_equal(masked(0), masked(0))
    assert not np.array_equal(masked(0), masked(1))
    np.testing.assert_array_equal(masked(0, train=False), 1.0)


def test_layers_do_not_share_a_mask():
    hidden = {"w": jnp.eye(500), "b": jnp.zeros(500)}
    outputs = mlp_forward(
        [hidden, hidden, hidden], jnp.ones((1, 500)), jax.random.key(0), jnp.float32(0.5)
    )
    # Two independent masks leave a quarter of the units, one shared mask would leave half.
    assert abs(float((outputs > 0).mean()) - 0.25) < 0.08


def test_trains(trains):
    trains(mlp(16, outputs=3))
    trains(mlp(16, outputs=3), dropout=0.2)


def test_descriptions_are_compared_by_value():
    assert mlp(3, outputs=2) == mlp(3, outputs=2)
    assert hash(mlp(3)) == hash(mlp(3))
    assert mlp(3) != mlp(4)


def test_the_width_of_the_output_must_be_known():
    with pytest.raises(AssertionError, match="give outputs="):
        mlp(3).init(jax.random.key(0), jnp.ones((1, 2)))
