"""The strict session: two CPU devices, shapes checked, nothing promoted in silence."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")

from jaxtyping import install_import_hook

install_import_hook("purefit.core", "beartype.beartype")

import jax
import optax
import pytest

_bias_correction = optax.tree.bias_correction


def _lenient_bias_correction(*arguments):
    """Optax raises a float to an integer power here: the one place that strictness cannot hold."""
    with jax.numpy_dtype_promotion("standard"):
        return _bias_correction(*arguments)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(optax.tree, "bias_correction", _lenient_bias_correction)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def pytest_sessionstart(session):
    assert len(jax.devices()) == 2, "the tests need two CPU devices"
