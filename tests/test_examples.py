"""Every example runs, on few examples, and what it shows is true."""

import ast
import importlib
import inspect
from pathlib import Path

import jax
import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
SMALL = ["--epochs", "2", "--limit", "4000"]

# Frameworks and a user's own code promote; the strict session is for purefit's.
pytestmark = pytest.mark.usefixtures("lenient")


@pytest.fixture
def lenient():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def run(name, *arguments):
    return importlib.import_module(f"examples.{name}").main(list(arguments))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_says_what_it_shows_and_is_tested(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert ast.get_docstring(ast.parse(text))
    calls = [
        value
        for key, value in globals().items()
        if key.startswith("test_") and f'"{name}"' in inspect.getsource(value)
    ]
    assert calls, f"no test here runs examples/{name}.py"


def test_mnist(capsys):
    done = run("mnist", *SMALL)
    assert done.history["test_accuracy"][-1] > 0.85
    shown = capsys.readouterr().out
    assert f"test accuracy {done.history['test_accuracy'][-1]:.4f}" in shown
    assert "true      [7 2 1 0 4 1 4 9 5 9]" in shown


def test_functions():
    done = run("functions", *SMALL)
    assert done.history["test_accuracy"][-1] > 0.8
    assert done.hyper.dropout == 0.1
    assert sorted(done.params) == ["bias", "into", "out"]


def test_linen():
    pytest.importorskip("flax")
    done = run("linen", *SMALL)
    assert done.history["test_accuracy"][-1] > 0.85
    assert sorted(done.state.model_state) == ["batch_stats"]


def test_nnx():
    pytest.importorskip("flax")
    done = run("nnx", *SMALL)
    assert done.history["test_accuracy"][-1] > 0.85
    assert sorted(done.state.model_state) == ["norm.mean", "norm.var"]


def test_equinox():
    pytest.importorskip("equinox")
    done = run("equinox_net", *SMALL)
    assert done.history["test_accuracy"][-1] > 0.85
    assert done.state.model_state


def test_a_mapped_run_is_the_run_alone_but_for_rounding():
    hyper, history, alone = run("vmap_runs", "--epochs", "2", "--limit", "1000")
    assert history["test_accuracy"].shape == (8, 2)
    for name, column in alone.items():
        np.testing.assert_allclose(history[name][1], column, rtol=1e-3, atol=1e-3, err_msg=name)
    best = history["test_accuracy"][:, -1].reshape(2, 4).argmax(axis=1)
    rates = hyper.learning_rate[:4]
    assert (rates[best] > 0.01).all()
    assert (rates[best] < 1.0).all()


def test_a_stopped_run_goes_on_to_the_same_state(capsys):
    step, straight, resumed = run("resume", "--epochs", "8", "--limit", "2000")
    assert 16 <= step < 8 * 16
    assert straight == resumed
    assert capsys.readouterr().out.endswith("the same\n")


def test_regression():
    pytest.importorskip("sklearn")
    ours, theirs = run("regression")
    assert theirs > 0.3
    assert ours > theirs - 0.05


def test_own_loss():
    done = run("own_loss", *SMALL)
    assert done.history["test_accuracy"][-1] > 0.75
    assert done.history["test_top_three"][-1] > done.history["test_accuracy"][-1]
    # A target smoothed by 0.1 over ten classes has an entropy of 0.5 nats: no loss is below it.
    assert done.history["train_loss"][-1] > 0.5


def test_two_inputs():
    done = run("two_inputs", "--epochs", "4", "--limit", "8000")
    assert done.history["test_accuracy"][-1] > 0.3
