"""The commands as a user types them."""

import json

import numpy as np
import pytest
import tomli_w
from PIL import Image

import purefit as pf
from purefit.cli import main

NET = """
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(3)(nn.Dropout(0.1, deterministic=not train)(x.reshape(x.shape[0], -1)))
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(name="images")
def _images(tmp_path):
    """Three kinds of small dark images, in a file."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120).astype(np.int64)
    x = rng.integers(0, 40, (120, 8, 8)).astype(np.uint8)
    for row, kind in enumerate(y):
        x[row, 2 * kind : 2 * kind + 2] = 220
    path = tmp_path / "stripes.npz"
    np.savez(path, x_train=x[:90], y_train=y[:90], x_test=x[90:], y_test=y[90:])
    return path


def said(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_train_prints_its_object_and_the_seed_decides(images, capsys):
    words = [
        "train",
        str(images),
        "--epochs",
        "3",
        "--batch-size",
        "16",
        "--hidden",
        "16",
        "--json",
    ]
    objects = []
    for seed in ("0", "0", "1"):
        assert main([*words, "--seed", seed]) == 0
        objects.append(said(capsys))
    first, again, other = objects
    assert {
        *("run", "epochs", "steps", "train_loss", "train_accuracy", "test_loss", "test_accuracy"),
        *("compile_seconds", "run_seconds", "mode", "state_hash"),
    } <= set(first)
    assert (first["epochs"], first["steps"], first["mode"]) == (3, 18, "scan")
    assert first["run"] != again["run"]
    assert first["state_hash"] == again["state_hash"] != other["state_hash"]


def test_a_run_from_the_first_word_to_the_last(images, tmp_path, capsys):
    words = ["--epochs", "20", "--batch-size", "16", "--learning-rate", "0.01", "--out", "run"]
    assert main(["train", str(images), *words]) == 0
    text = capsys.readouterr()
    assert "saved in run" in text.out
    assert text.err.count("epoch ") == 20
    assert main(["evaluate", "run", "--json"]) == 0
    scores = said(capsys)
    assert scores["accuracy"] > 0.9
    assert main(["evaluate", "run", "--split", "train", "--which", "best"]) == 0
    assert "train split" in capsys.readouterr().out
    with np.load(images) as arrays:
        x, y = arrays["x_test"], arrays["y_test"]
    Image.fromarray(x[0]).save("one.png")
    np.save("several.npy", x[:5])
    assert main(["predict", "run", "one.png", "several.npy", "--json"]) == 0
    rows = said(capsys)["predictions"]
    assert [row["file"] for row in rows[:2]] == ["one.png", "several.npy[0]"]
    assert rows[0]["class"] == rows[1]["class"] == y[0]
    assert sum(rows[0]["probabilities"]) == pytest.approx(1, abs=1e-5)
    assert main(["predict", "run", "one.png"]) == 0
    assert capsys.readouterr().out.startswith(f"one.png: {y[0]} (probability ")
    assert main(["resume", "run", "--json"]) == 0
    assert said(capsys)["epochs"] == 20


def test_a_toml_file_sets_what_flags_do_not(images, tmp_path, capsys):
    settings = {
        "data": str(images),
        "epochs": 2,
        "batch_size": 30,
        "hidden": [8, 4],
        "shuffle": False,
        "dropout": 0.1,
    }
    (tmp_path / "my.toml").write_text(tomli_w.dumps(settings))
    assert main(["train", "--config", "my.toml", "--epochs", "1", "--out", "run", "--json"]) == 0
    first = said(capsys)
    assert first["epochs"] == 1
    assert first["steps"] == 3
    saved = (tmp_path / "run" / "run.toml").read_text()
    assert "shuffle = false" in saved
    assert "dropout = 0.1" in saved
    assert main(["train", "--config", "run/run.toml", "--out", "again", "--json"]) == 0
    assert said(capsys)["state_hash"] == first["state_hash"]


def test_a_model_from_a_file_has_to_be_named_again(images, tmp_path, capsys):
    (tmp_path / "net.py").write_text(NET)
    words = ["train", str(images), "--model", "net.py:Net", "--epochs", "2", "--out", "run"]
    assert main([*words, "--json"]) == 0
    first = said(capsys)
    assert main(["resume", "run"]) == 2
    assert "Expected --model net.py:Net again, got none" in capsys.readouterr().err
    assert main(["evaluate", "run", "--model", "net.py:Net", "--json"]) == 0
    assert said(capsys)["accuracy"] == pytest.approx(first["test_accuracy"])


def test_the_cnn_and_its_mode(images, capsys):
    words = ["--model", "cnn", "--channels", "4", "--hidden", "8", "--epochs", "1", "--json"]
    assert main(["train", str(images), *words]) == 0
    assert said(capsys)["mode"] == "unroll"


def test_numbers_are_predicted_as_numbers(tmp_path, capsys):
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
    np.savez("line.npz", x=x, y=2 * x)
    words = ["--loss", "mean_squared_error", "--epochs", "60", "--batch-size", "16"]
    words += ["--learning-rate", "0.01", "--out", "run"]
    assert main(["train", "line.npz", *words]) == 0
    assert "train loss" in capsys.readouterr().out
    np.save("x.npy", np.array([[0.5]], np.float32))
    assert main(["predict", "run", "x.npy", "--json"]) == 0
    (row,) = said(capsys)["predictions"]
    assert row["output"] == pytest.approx([1.0], abs=0.2)


@pytest.mark.parametrize(
    "command", [[], ["train"], ["resume"], ["evaluate"], ["predict"], ["verify"]]
)
def test_help_is_for_newcomers(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "purefit train mnist" in text or f"Example: purefit {command[0]}" in text
    assert "{None}" not in text


def test_the_version_is_the_packages(capsys):
    from importlib.metadata import version

    assert pf.__version__ == version("purefit")
