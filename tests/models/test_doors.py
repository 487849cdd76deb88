import subprocess
import sys
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx

from purefit.core.run import make_run
from purefit.core.settings import Hyper, Plan
from purefit.errors import MissingExtraError, ModelError
from purefit.models.cnn import cnn
from purefit.models.doors import as_model, sized
from purefit.models.equinox import EquinoxModel
from purefit.models.functions import FunctionModel
from purefit.models.linen import LinenModel
from purefit.models.mlp import mlp
from purefit.models.nnx import NnxModel


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(2, 3, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


class Wide(nnx.Module):
    def __init__(self, rngs, *, width):
        self.layers = nnx.List([nnx.Linear(2, width, rngs=rngs), nnx.Linear(width, 3, rngs=rngs)])

    def __call__(self, x):
        return self.layers[1](nnx.relu(self.layers[0](x)))


class Norm(eqx.Module):
    layer: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self, key):
        self.layer = eqx.nn.Linear(2, 3, key=key)
        self.norm = eqx.nn.BatchNorm(3, "batch", mode="batch")

    def __call__(self, x, state):
        return self.norm(self.layer(x), state)


def linear(key):
    return eqx.nn.Linear(2, 3, key=key)


def stateful(key):
    return eqx.nn.make_with_state(Norm)(key)


def zeros(key):
    return jnp.zeros((2, 3))


def product(params, x):
    return x @ params


class Pair(NamedTuple):
    init: object
    apply: object


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: (zeros, product), FunctionModel),
        (lambda: Pair(zeros, product), FunctionModel),
        (Linen, LinenModel),
        (lambda: Nnx(nnx.Rngs(0)), NnxModel),
        (lambda: Nnx, NnxModel),
        (lambda: lambda rngs: Nnx(rngs=rngs), NnxModel),
        (lambda: partial(Wide, width=4), NnxModel),
        (lambda: linear(jax.random.key(0)), EquinoxModel),
        (lambda: linear, EquinoxModel),
        (lambda: stateful(jax.random.key(0)), EquinoxModel),
        (lambda: stateful, EquinoxModel),
        (lambda: eqx.nn.make_with_state(Norm), EquinoxModel),
    ],
    ids=range(12),
)
def test_everything_comes_in_and_fits_a_run(blobs, make, kind):
    model = as_model(make())
    assert type(model) is kind
    assert model.reads == ()
    run = make_run(model, Plan(epochs=2, batch_size=16))
    state, history = jax.eval_shape(run, jax.random.key(0), Hyper(), blobs)
    assert state.params
    assert history["step_loss"].shape == (2, 4)


def test_a_model_stays_what_it_is():
    model = mlp(3)
    assert as_model(model) is model
    door = as_model(Linen())
    assert as_model(door) is door


def test_a_factory_keeps_its_identity():
    assert as_model(linear) == as_model(linear)
    assert as_model(Nnx) == as_model(Nnx)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (3, "int"),
        (None, "NoneType"),
        ([zeros, product], "list"),
        ((zeros, 3), "tuple"),
        ((zeros, product, product), "tuple"),
        (mlp, "mlp, which "),
        (type(mlp(3)), "Mlp, which "),
        (lambda key: 3, "<lambda>, which makes int"),
        (lambda: 3, "<lambda>, which fails when it is called with a key"),
        (lambda key: {}, "<lambda>, which makes dict"),
        (lambda key: (), "<lambda>, which makes tuple"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(given, got):
    with pytest.raises(ModelError) as caught:
        as_model(given)
    message = str(caught.value)
    assert message.startswith("Expected a model such as pf.mlp(256)")
    assert f"got {got}" in message
    assert message.endswith("pass one of these.")


def test_refusals_of_the_doors_come_through():
    with pytest.raises(ModelError, match="got Linen; call the class"):
        as_model(Linen)
    with pytest.raises(ModelError, match="no more than key"):
        as_model((zeros, lambda params, x, other: x))
    with pytest.raises(ModelError, match="stateful module together with its State"):
        as_model(Norm)


def test_sized_fills_in_what_is_open():
    assert sized(mlp(3), 7) == mlp(3, outputs=7)
    assert sized(cnn(4), 7) == cnn(4, outputs=7)
    settled = mlp(3, outputs=2)
    assert sized(settled, 7) is settled
    other = as_model((zeros, product))
    assert sized(other, 7) is other


@pytest.mark.parametrize(
    ("door", "package", "extra"),
    [("linen", "flax", "flax"), ("nnx", "flax", "flax"), ("equinox", "equinox", "equinox")],
)
def test_a_missing_framework_is_named_with_its_command(monkeypatch, door, package, extra):
    import importlib

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"purefit.models.{door}")
    with pytest.raises(MissingExtraError, match=rf"{package} .* pip install 'purefit\[{extra}\]'"):
        importlib.import_module(f"purefit.models.{door}")


def test_a_factory_of_rngs_without_flax_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax", None)
    monkeypatch.delitem(sys.modules, "purefit.models.nnx")
    with pytest.raises(MissingExtraError, match=r"pip install 'purefit\[flax\]'"):
        as_model(lambda rngs: None)


def test_the_doors_import_no_framework():
    code = """
import sys
from functools import partial
from purefit.models.doors import as_model
from purefit.models.mlp import mlp
as_model(mlp(3))
as_model((lambda key: 0, lambda params, x: x))
assert not {"flax", "equinox"} & {name.split(".")[0] for name in sys.modules}
"""
    subprocess.run([sys.executable, "-c", code], check=True)
