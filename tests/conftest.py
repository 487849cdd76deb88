"""The strict session: two CPU devices, shapes checked, nothing promoted in silence."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")

from jaxtyping import install_import_hook

# Records (settings, states, metrics) also hold shapes and traced values: they are not checked.
CHECKED = ("batches", "evaluate", "losses", "optimizers", "run", "step", "streams")
install_import_hook(
    [f"purefit.core.{module}" for module in CHECKED] + ["purefit.models"], "beartype.beartype"
)

import jax
import pytest


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def pytest_sessionstart(session):
    assert len(jax.devices()) == 2, "the tests need two CPU devices"
