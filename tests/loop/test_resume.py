"""Resuming at any step gives the bits of a run that was never stopped."""

import shutil

import equinox as eqx
import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

import purefit as pf
from purefit.io.checkpoints import steps


@pytest.fixture(autouse=True)
def lenient():
    """Flax and Equinox promote dtypes and ranks themselves."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class LinenNet(nn.Module):
    """Dropout and BatchNorm in Flax Linen."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(12)(x)))
        return nn.Dense(3)(nn.Dropout(0.3, deterministic=not train)(x))


class NnxNet(nnx.Module):
    """Dropout and BatchNorm in Flax NNX."""

    def __init__(self, *, rngs):
        self.first = nnx.Linear(6, 12, rngs=rngs)
        self.norm = nnx.BatchNorm(12, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.last = nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


class EqxNet(eqx.Module):
    """Dropout and BatchNorm in Equinox."""

    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.first = eqx.nn.Linear(6, 12, key=one)
        self.norm = eqx.nn.BatchNorm(12, axis_name="batch", mode="batch")
        self.drop = eqx.nn.Dropout(0.3)
        self.last = eqx.nn.Linear(12, 3, key=two)

    def __call__(self, x, state, *, key):
        x, state = self.norm(self.first(x), state)
        return self.last(self.drop(jax.nn.relu(x), key=key)), state


def equinox_net(key):
    return eqx.nn.make_with_state(EqxNet)(key)


MODELS = {
    "pure": (pf.mlp(12), {"dropout": 0.3}),
    "linen": (LinenNet(), {}),
    "nnx": (NnxNet, {}),
    "equinox": (equinox_net, {}),
}


@pytest.fixture(scope="module", name="data")
def _data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 75).astype(np.int32)
    x = (rng.normal(size=(75, 6)) + np.eye(6)[y]).astype(np.float32)
    return pf.Data(x, y), pf.Data(x[:20], y[:20])


def check_every_step(model, data, tmp_path, **settings):
    """Save every step of a run, go on from each of them, and compare bits and history."""
    train, test = data
    settings = {
        "epochs": 2,
        "batch_size": 8,
        "save_every_steps": 1,
        "keep_last": 100,
        "progress": "none",
        **settings,
    }
    whole = pf.fit(model, train, test, out=tmp_path / "whole", **settings)
    saved = steps(tmp_path / "whole" / "checkpoints")
    assert saved == list(range(1, 21))
    for step in (1, 4, 9, 10, 13, 19):  # begin, mid-epoch, before and at the end of an epoch, end
        folder = tmp_path / f"from-{step}"
        shutil.copytree(tmp_path / "whole", folder)
        for later in saved:
            if later > step:
                shutil.rmtree(folder / "checkpoints" / f"step_{later:08d}")
        again = pf.fit(model, train, test, out=folder, resume=True, **settings)
        assert again.timings.steps == 20 - step
        assert pf.state_hash(again.state) == pf.state_hash(whole.state), step
        for name, column in whole.history.items():
            assert again.history[name].tolist() == column.tolist(), (step, name)
        assert (folder / "metrics.jsonl").read_text() == (
            tmp_path / "whole" / "metrics.jsonl"
        ).read_text()


@pytest.mark.parametrize("name", list(MODELS))
def test_every_kind_of_model_resumes_bit_for_bit(name, data, tmp_path):
    model, settings = MODELS[name]
    check_every_step(model, data, tmp_path, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "unroll", "unroll": 4},
        {"mode": "step"},
        {"schedule": "warmup_cosine", "optimizer": "adamw", "clip_norm": 0.5},
        {"optimizer": "sgd", "momentum": 0.9, "shuffle": False},
    ],
    ids=["unroll", "step", "schedule", "momentum"],
)
def test_every_mode_and_optimizer_resumes_bit_for_bit(settings, data, tmp_path):
    check_every_step(pf.mlp(12), data, tmp_path, **settings)


def test_saving_does_not_change_the_bits(data, tmp_path):
    train, test = data
    settings = {"epochs": 2, "batch_size": 8, "progress": "none"}
    plain = pf.fit(pf.mlp(12), train, test, **settings)
    saved = pf.fit(pf.mlp(12), train, test, out=tmp_path / "run", save_every_steps=3, **settings)
    assert pf.state_hash(plain.state) == pf.state_hash(saved.state)


def test_a_cnn_resumes_bit_for_bit(tmp_path):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (75, 8, 8)).astype(np.uint8)
    labels = (images.reshape(75, -1).mean(1) > 127).astype(np.int32)
    train = pf.Data(images, labels)
    check_every_step(
        pf.cnn(4, hidden=8), (train, pf.Data(images[:20], labels[:20])), tmp_path, dropout=0.1
    )
