"""Bad input from Python: the right class of error, in one sentence, before anything is made."""

from fractions import Fraction
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purefit as pf

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = np.arange(40, dtype=np.int32) % 3
MODEL = pf.mlp(4)


def mean(outputs, targets):
    return jnp.mean(outputs)


def fails(*arguments):
    return 1 / 0


def loss(outputs, targets):
    return jnp.sum(outputs, axis=-1)


def grows(params):
    return optax.GradientTransformation(lambda params: (), lambda g, state, p: (g, (state,)))


SETTINGS = {
    "learning_rate array": ({"learning_rate": np.ones((30, 2))}, "learning_rate", "array"),
    "learning_rate text": ({"learning_rate": "0.1"}, "'0.1'"),
    "learning_rate true": ({"learning_rate": True}, "True"),
    "learning_rate complex": ({"learning_rate": 1j}, "1j"),
    "learning_rate beyond floats": ({"learning_rate": 10**400}, "learning_rate"),
    "learning_rate too small": ({"learning_rate": Fraction(1, 10**60)}, "float32"),
    "unknown setting": ({"lr": 0.1}, "'lr'", "learning_rate"),
    "epochs a fraction": ({"epochs": 1.0}, "epochs", "1.0"),
    "epochs too many": ({"epochs": 10**30}, "2**31"),
    "batch_size too large": ({"batch_size": 10**30}, "batch_size", "2**31"),
    "shuffle a number": ({"shuffle": 1}, "shuffle", "got 1"),
    "mode None": ({"mode": None}, "mode", "None"),
    "schedule a list": ({"schedule": ["constant"]}, "schedule", "['constant']"),
    "loss a number": ({"loss": 3}, "loss", "got 3"),
    "loss a list": ({"loss": ["cross_entropy"]}, "loss", "cross_entropy"),
    "loss that fails": ({"loss": fails}, "loss", "ZeroDivisionError"),
    "metrics a text": ({"metrics": "accuracy"}, "metrics", "'accuracy'"),
    "metrics a number": ({"metrics": 3}, "metrics", "got 3"),
    "metrics of numbers": ({"metrics": [3]}, "metrics", "got 3"),
    "metrics unknown": ({"metrics": ["acc"]}, "metrics", "'acc'"),
    "metrics of one name": ({"metrics": (lambda o, t: o, lambda o, t: t)}, "<lambda>"),
    "metric named loss": ({"metrics": (loss,)}, "loss"),
    "metric that fails": ({"metrics": (fails,)}, "fails", "ZeroDivisionError"),
    "optimizer a number": ({"optimizer": 3}, "optimizer", "int"),
    "optimizer of one argument": ({"optimizer": lambda hyper: optax.sgd(0.1)}, "TypeError"),
    "optimizer that gives none": ({"optimizer": lambda h, t: None}, "AttributeError"),
    "optimizer that fails": ({"optimizer": fails}, "ZeroDivisionError"),
    "optimizer that grows": ({"optimizer": grows(None)}, "form"),
    "rate with optimizer": ({"optimizer": optax.sgd(0.1), "learning_rate": 0.1}, "learning_rate"),
    "schedule with optimizer": (
        {"optimizer": optax.sgd(0.1), "schedule": "warmup_cosine"}, "'warmup_cosine'",
    ),
    "seed a text": ({"seed": "1"}, "seed", "'1'"),
    "seed an array": ({"seed": np.arange(100).reshape(5, 20)}, "seed", "array"),
    "keep_best a number": ({"keep_best": 1}, "keep_best"),
    "save_every_seconds true": ({"save_every_seconds": True}, "save_every_seconds"),
    "save_every_seconds huge": ({"save_every_seconds": 10**400}, "save_every_seconds"),
    "progress unknown": ({"progress": "loud"}, "'loud'"),
    "out a number": ({"out": 3}, "out", "got 3"),
    "out bytes": ({"out": b"run"}, "out", "b'run'"),
    "out empty": ({"out": ""}, "out", "''"),
}  # fmt: skip

DATA = {
    "nothing": (None, "NoneType"),
    "one array": (X, "ndarray"),
    "three arrays": ((X, Y, Y), "tuple of 3"),
    "a dict of others": ({"inputs": X, "labels": Y}, "'inputs'"),
    "an iterator": ((iter(X), Y), "train.x", "iterator"),
    "ragged lists": (([[1.0], [1.0, 2.0]], Y[:2]), "train.x", "equal shape"),
    "a set": (({1, 2}, Y), "train.x", "set"),
    "no x": ((None, Y), "train.x", "NoneType"),
    "a tree of other lengths": (({"a": X, "b": X[:3]}, Y), "train.x['b']", "40 and 3"),
    "two arrays of labels": ((X, {"a": Y, "b": Y}), "train.y", "2 arrays"),
}

CALLS = {
    "resume from nowhere": (pf.RunFolderError, lambda: fit(resume=True), "out="),
    "no model": (pf.ModelError, lambda: pf.fit(None, (X, Y)), "NoneType"),
    "model's name": (pf.ModelError, lambda: pf.fit("mlp", (X, Y)), "str"),
    "width 0": (pf.SettingsError, lambda: pf.mlp(0), "hidden", "got 0"),
    "outputs 0": (pf.SettingsError, lambda: pf.mlp(4, outputs=0), "outputs", "got 0"),
    "channels 0": (pf.SettingsError, lambda: pf.cnn(0), "channels", "got 0"),
    "loss that averages": (
        pf.ModelError, lambda: fit(pf.mlp(4, outputs=3), loss=mean), "mean", "shape ()",
    ),
    "metric that averages": (pf.ModelError, lambda: fit(metrics=(mean,)), "mean", "shape ()"),
    "label beyond outputs": (
        pf.DataError, lambda: fit(pf.mlp(4, outputs=2)), "train.y", "2 in row 2",
    ),
    "label beyond outputs, loss as a function": (
        pf.DataError, lambda: fit(pf.mlp(4, outputs=2), loss=pf.cross_entropy), "2 in row 2",
    ),
    "targets of another width": (
        pf.ModelError, lambda: fit(loss="mean_squared_error"), "y[:, None]",
    ),
    "validation a flag": (pf.DataError, lambda: fit(valid=False), "valid", "bool"),
    "validation of another tree": (pf.DataError, lambda: fit(valid=({"a": X}, Y)), "valid.x['a']"),
}  # fmt: skip


def fit(model=MODEL, **settings):
    return pf.fit(model, (X, Y), **{"epochs": 1, "progress": "none", **settings})


@pytest.fixture(scope="module")
def run():
    return fit()


@pytest.fixture(autouse=True)
def nothing_is_made(tmp_path, monkeypatch):
    """Run in an empty folder, and look whether it is still empty."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name, sentence):
    settings, *words = SETTINGS[name]
    model = pf.mlp(4, outputs=3)
    with pytest.raises(pf.SettingsError) as error:
        fit(model, **{"out": "run", **settings})
    sentence(str(error.value), *words)


@pytest.mark.parametrize("name", DATA)
def test_data(name, sentence):
    data, *words = DATA[name]
    with pytest.raises(pf.DataError) as error:
        pf.fit(MODEL, data, out="run", epochs=1, progress="none")
    sentence(str(error.value), *words)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name, sentence):
    kind, call, *words = CALLS[name]
    with pytest.raises(kind) as error:
        call()
    assert isinstance(error.value, pf.InputError)
    sentence(str(error.value), *words)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: pf.evaluate(run, None), ("NoneType",)),
        (lambda run: pf.evaluate(run, (X[:, :2], Y)), ("data.x", "(2,)")),
        (lambda run: pf.evaluate(run, (X, Y + 9)), ("data.y", "9 in row 0")),
        (lambda run: pf.evaluate(run, (X, Y), batch_size=0), ("batch_size", "got 0")),
        (lambda run: pf.evaluate(run, (X, Y), batch_size=-1), ("batch_size", "got -1")),
        (lambda run: pf.predict(run, None), ("inputs", "NoneType")),
        (lambda run: pf.predict(run, X[:0]), ("inputs", "(0, 4)")),
        (lambda run: pf.predict(run, X[:, :2]), ("inputs", "(2,)")),
        (lambda run: pf.predict(run, X * np.nan), ("inputs", "NaN")),
        (lambda run: pf.predict(run, {"a": X}), ("inputs", "'a'")),
        (lambda run: pf.predict(run, X, by="row"), ("'row'", "example")),
        (lambda run: pf.predict(run, X, batch_size="many"), ("batch_size", "'many'")),
    ],
)
def test_a_finished_run(call, words, run, sentence):
    with pytest.raises(pf.InputError) as error:
        call(run)
    sentence(str(error.value), *words)


@pytest.mark.parametrize(
    ("kind", "arguments", "options", "words"),
    [
        (pf.RunFolderError, ("gone", MODEL, X), {}, ("gone",)),
        (pf.SettingsError, (3, MODEL, X), {}, ("folder", "got 3")),
        (pf.SettingsError, ("base", MODEL, X), {"which": "first"}, ("'first'", "best")),
        (pf.SettingsError, ("base", MODEL, X), {"batch_size": 0}, ("batch_size",)),
        (pf.DataError, ("base", MODEL, None), {}, ("like", "NoneType")),
        (pf.CheckpointError, ("base", pf.mlp(5), X), {}, ("(5,)", "(4,)")),
        (pf.CheckpointError, ("base", MODEL, X[:, :2]), {}, ("(2, 4)", "(4, 4)")),
        (pf.CheckpointError, ("base", pf.mlp(4, 4), X), {}, (".params[1]['b']",)),
    ],
)
def test_loading(kind, arguments, options, words, world, sentence, hashes):
    folder, *rest = arguments
    before = hashes(world / "base")
    place = world / folder if isinstance(folder, str) else folder
    with pytest.raises(kind) as error:
        pf.load(place, *rest, **options)
    sentence(str(error.value), *words)
    assert hashes(world / "base") == before


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epochs": 5}, ("epochs",)),
        ({"seed": 1}, ("seed",)),
        ({"optimizer": "sgd"}, ("optimizer", "'sgd'")),
        ({"learning_rate": 0.5}, ("learning_rate", "0.5")),
        ({"data": (X + 1, Y)}, ("train_data",)),
        ({"data": (X, Y), "model": pf.mlp(5)}, ("(5,)", "(4,)")),
    ],
)
def test_resuming_another_run(changed, words, tmp_path_factory, sentence, hashes):
    out = Path(tmp_path_factory.mktemp("runs"), "run")
    fit(out=out)
    before = hashes(out)
    settings = {"epochs": 1, "progress": "none", "out": out, "resume": True, **changed}
    model, data = settings.pop("model", MODEL), settings.pop("data", (X, Y))
    with pytest.raises(pf.CheckpointError) as error:
        pf.fit(model, data, **settings)
    sentence(str(error.value), *words)
    assert hashes(out) == before
