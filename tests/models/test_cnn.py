import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.losses import find_loss
from purefit.core.types import Data
from purefit.errors import ModelError
from purefit.models.cnn import cnn


def plain_convolution(images, weights, biases):
    """Sum over the 3 by 3 neighbourhood of every pixel, with zeros around the image."""
    batch, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    summed = np.zeros((batch, height, width, weights.shape[-1]))
    for n, i, j in np.ndindex(batch, height, width):
        patch = padded[n, i : i + 3, j : j + 3]
        summed[n, i, j] = np.einsum("ijc,ijco->o", patch, weights) + biases
    return summed


def plain_pool(images):
    batch, height, width, channels = images.shape
    pooled = np.zeros((batch, height // 2, width // 2, channels))
    for i, j in np.ndindex(height // 2, width // 2):
        pooled[:, i, j] = images[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((1, 2))
    return pooled


@pytest.mark.parametrize("shape", [(2, 8, 8), (3, 9, 6, 2)])
def test_forward_is_plain_numpys(shape):
    rng = np.random.default_rng(0)
    shaped = rng.uniform(size=shape).astype(np.float32)
    images = jnp.asarray(shaped)
    model = cnn(3, 4, hidden=5, outputs=2)
    variables = model.init(jax.random.key(0), images)
    noisy = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(rng.normal(size=leaf.shape) * 0.1, jnp.float32),
        variables,
    )
    outputs, state = model.apply(noisy, images, key=jax.random.key(0), train=False)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), noisy.params)
    values = shaped if shaped.ndim == 4 else shaped[..., None]
    for layer in params["conv"]:
        values = plain_pool(np.maximum(plain_convolution(values, layer["w"], layer["b"]), 0))
    hidden, last = params["dense"]
    values = np.maximum(values.reshape(len(values), -1) @ hidden["w"] + hidden["b"], 0)
    np.testing.assert_allclose(outputs, values @ last["w"] + last["b"], rtol=1e-4, atol=1e-5)
    assert state == ()


def test_shapes_of_the_usual_network():
    images = jnp.zeros((1, 28, 28))
    shapes = jax.eval_shape(cnn(outputs=10).init, jax.random.key(0), images).params
    assert [layer["w"].shape for layer in shapes["conv"]] == [(3, 3, 1, 32), (3, 3, 32, 64)]
    assert [layer["w"].shape for layer in shapes["dense"]] == [(7 * 7 * 64, 128), (128, 10)]


def test_weights_are_scaled_by_their_fan_in():
    params = cnn(32, 64, outputs=10).init(jax.random.key(0), jnp.zeros((1, 28, 28))).params
    for layer in [*params["conv"], *params["dense"]]:
        count = layer["w"].size
        variance = 2 / math.prod(layer["w"].shape[:-1])
        assert abs(float(layer["w"].var()) / variance - 1) < 4 * math.sqrt(2 / count)
        np.testing.assert_array_equal(layer["b"], 0.0)


def test_the_first_loss_is_that_of_guessing():
    # As in digits, four of five pixels are dark. On brighter images the loss starts higher, since
    # each max-pooling doubles the signal's mean square, which He's scaling knows nothing of.
    lit = jax.random.bernoulli(jax.random.key(2), 0.2, (64, 28, 28))
    images = jax.random.uniform(jax.random.key(0), (64, 28, 28)) * lit.astype(jnp.float32)
    labels = jax.random.randint(jax.random.key(1), (64,), 0, 10)
    model = cnn(outputs=10)
    for seed in range(3):
        variables = model.init(jax.random.key(seed), images)
        outputs, _ = jax.jit(model.apply, static_argnames="train")(
            variables, images, key=jax.random.key(0), train=False
        )
        loss = float(find_loss("cross_entropy")(outputs, labels).mean())
        assert abs(loss - math.log(10)) < 0.5, loss


def test_dropout_acts_in_training_only():
    images = jax.random.uniform(jax.random.key(0), (4, 4, 4))
    model = cnn(4, hidden=64, outputs=3)
    variables = model.init(jax.random.key(0), images)

    def outputs(seed, train=True, rate=0.5):
        key = jax.random.key(seed)
        return model.apply(variables, images, key=key, train=train, dropout=jnp.float32(rate))[0]

    np.testing.assert_array_equal(outputs(0), outputs(0))
    assert not np.array_equal(outputs(0), outputs(1))
    np.testing.assert_array_equal(outputs(0, train=False), outputs(1, train=False))
    np.testing.assert_array_equal(outputs(0, rate=0.0), outputs(1, train=False))


def test_trains(trains, blobs):
    bars = jnp.zeros((60, 6, 6)).at[jnp.arange(60), blobs.y * 2].set(1.0)
    noise = jax.random.uniform(jax.random.key(0), bars.shape) * 0.3
    trains(cnn(4, hidden=16, outputs=3), Data(bars + noise, blobs.y))


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match=r"at least 4 by 4 pixels for 2 poolings, got 3 by 8"):
        cnn(2, 2, outputs=2).init(jax.random.key(0), jnp.zeros((1, 3, 8)))
    with pytest.raises(ModelError, match=r"got \(5, 8\); reshape"):
        cnn(2, outputs=2).init(jax.random.key(0), jnp.zeros((5, 8)))


def test_descriptions_are_compared_by_value():
    assert cnn() == cnn(32, 64)
    assert hash(cnn(4)) == hash(cnn(4))
    assert cnn(4) != cnn(4, hidden=3)
