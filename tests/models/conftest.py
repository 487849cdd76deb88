"""What the tests of the models share: small separable data, and a short training run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.run import make_run
from purefit.core.settings import Hyper, Plan
from purefit.core.types import Data
from purefit.models.doors import as_model


@pytest.fixture
def blobs():
    """Make 60 points in the plane around 3 centres, easily told apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    centres = np.array([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0]])
    points = centres[labels] + rng.normal(size=(60, 2))
    return Data(jnp.asarray(points, jnp.float32), jnp.asarray(labels, jnp.int32))


@pytest.fixture
def trains(blobs):
    """Train a model twice in one program; the loss falls and the bits agree."""

    def check(model, data=blobs, **hyper):
        run = jax.jit(make_run(as_model(model), Plan(epochs=4, batch_size=15)))
        settings = Hyper(learning_rate=0.03, **hyper)
        first, history = run(jax.random.key(1), settings, data)
        again, _ = run(jax.random.key(1), settings, data)
        loss = np.asarray(history["train_loss"])
        assert loss[-1] < 0.6 * loss[0], loss
        same = jax.tree.map(lambda a, b: bool((a == b).all()), first.params, again.params)
        assert jax.tree.all(same)
        return first, history

    return check
