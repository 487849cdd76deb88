"""The host's loop: what it returns, says, keeps, and refuses."""

import dataclasses
import json
import shutil
import warnings

import jax
import numpy as np
import optax
import pytest

import purefit as pf
from purefit.errors import CheckpointError, NonFiniteError, PurefitWarning, RunFolderError
from purefit.io.checkpoints import steps
from purefit.loop.programs import _cached

MODEL = pf.mlp(16)
QUIET = {"progress": "none", "epochs": 3, "batch_size": 16}


@pytest.fixture(scope="module", name="data")
def _data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150).astype(np.int32)
    x = (rng.normal(size=(150, 6)) + 3 * np.eye(6)[y]).astype(np.float32)
    return pf.Data(x[:107], y[:107]), pf.Data(x[107:], y[107:])


def test_a_run_is_a_frozen_record_with_its_history(data):
    train, test = data
    run = pf.fit(MODEL, train, test, seed=1, learning_rate=0.01, **QUIET)
    assert run.model.outputs == 3
    assert run.hyper.b1 == 0.9
    assert list(run.history) == [
        "epoch",
        "step",
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
    ]
    assert run.history["epoch"].tolist() == [1, 2, 3]
    assert run.history["step"].tolist() == [7, 14, 21]
    assert run.history["test_accuracy"][-1] > 0.8
    assert run.timings.steps == 21
    assert run.timings.total >= run.timings.compile + run.timings.run > 0
    assert (run.mode, run.folder, run.seed) == ("scan", None, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.seed = 2


def test_the_last_row_is_what_evaluate_says(data):
    train, test = data
    run = pf.fit(MODEL, train, test, **QUIET)
    scores = pf.evaluate(run, test)
    assert scores["loss"] == pytest.approx(run.history["test_loss"][-1], rel=1e-6)
    assert scores["accuracy"] == run.history["test_accuracy"][-1]
    logits = pf.predict(run, test.x)
    assert (logits.argmax(-1) == test.y).mean() == pytest.approx(scores["accuracy"])
    mapped = pf.predict(run, test.x, by="example", batch_size=10)
    np.testing.assert_allclose(mapped, logits, rtol=1e-5, atol=1e-6)


def test_fit_gives_the_bits_of_the_pure_run(data):
    train, _ = data
    run = pf.fit(MODEL, train, seed=5, learning_rate=0.01, dropout=0.2, **QUIET)
    pure = jax.jit(pf.make_run(run.model, run.plan))
    state, history = pure(jax.random.key(5), run.hyper, jax.tree.map(jax.numpy.asarray, train))
    assert pf.state_hash(state) == pf.state_hash(run.state)
    np.testing.assert_allclose(history["train_loss"], run.history["train_loss"], rtol=1e-6)


@pytest.mark.parametrize("mode", ["scan", "unroll", "step"])
def test_a_seed_decides_every_bit_and_modes_agree_closely(data, mode):
    train, _ = data
    run, again, other = (pf.fit(MODEL, train, seed=seed, mode=mode, **QUIET) for seed in (3, 3, 4))
    assert pf.state_hash(run.state) == pf.state_hash(again.state) != pf.state_hash(other.state)
    scanned = pf.fit(MODEL, train, seed=3, mode="scan", **QUIET)
    np.testing.assert_allclose(run.history["train_loss"], scanned.history["train_loss"], rtol=1e-4)


def test_data_can_be_pairs_dicts_lists_and_any_nesting(data):
    train, _ = data
    given = pf.fit(MODEL, (train.x, train.y), **QUIET)
    listed = pf.fit(MODEL, (train.x.tolist(), train.y.tolist()), **QUIET)
    named = pf.fit(MODEL, {"x": train.x.astype(np.float64), "y": train.y.astype(np.int64)}, **QUIET)
    assert len({pf.state_hash(run.state) for run in (given, listed, named)}) == 1


def test_writing_to_the_data_afterwards_changes_nothing(data):
    train, test = data
    x = train.x.copy()
    run = pf.fit(MODEL, (x, train.y), test, **QUIET)
    x[:] = 0
    again = pf.fit(MODEL, (train.x.copy(), train.y), test, **QUIET)
    assert pf.state_hash(run.state) == pf.state_hash(again.state)


def test_the_users_own_loss_metric_and_optimizer(data):
    train, test = data

    def margin(logits, labels):
        right = logits[jax.numpy.arange(logits.shape[0]), labels]
        return jax.nn.relu(1 + logits.max(-1) - right)

    run = pf.fit(
        pf.mlp(16, outputs=3),
        train,
        test,
        loss=margin,
        metrics=("accuracy", pf.cross_entropy),
        optimizer=optax.chain(optax.clip(1.0), optax.sgd(0.05)),
        **QUIET,
    )
    assert {"test_loss", "test_accuracy", "test_cross_entropy"} <= set(run.history)
    assert run.history["train_loss"][-1] < run.history["train_loss"][0]


def test_a_loss_that_is_not_finite_names_step_and_leaf(data):
    train, _ = data
    with pytest.raises(
        NonFiniteError, match=r"got (nan|inf) at step (\d+) \(epoch \d+\)"
    ) as caught:
        pf.fit(MODEL, train, optimizer="sgd", learning_rate=1e12, **QUIET)
    assert caught.value.step >= 1
    assert caught.value.leaf.startswith(("params[", "the gradient of params["))


def test_the_saved_steps_survive_a_loss_that_is_not_finite(data, tmp_path):
    train, _ = data

    def spoil(hyper, total_steps):
        return optax.sgd(lambda step: jax.numpy.where(step < 9, 0.01, 1e30))

    with pytest.raises(NonFiniteError, match=r"; step 7 is saved in"):
        pf.fit(MODEL, train, optimizer=spoil, out=tmp_path / "run", **QUIET)
    assert steps(tmp_path / "run" / "checkpoints") == [7]


def test_progress_says_a_line_an_epoch_or_nothing(data, capsys):
    train, test = data
    pf.fit(MODEL, train, test, **{**QUIET, "progress": "plain"})
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert said.out == ""
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("train loss 0." in line or "train loss 1." in line for line in lines)
    assert all("test accuracy" in line and line.endswith("steps/s") for line in lines)
    pf.fit(MODEL, train, test, **QUIET)
    assert capsys.readouterr() == ("", "")


def test_the_folder_holds_settings_environment_history_and_steps(data, tmp_path):
    train, test = data
    folder = tmp_path / "deep" / "run"
    run = pf.fit(MODEL, train, test, out=folder, keep_last=1, **QUIET)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[-1]["test_loss"] == run.history["test_loss"][-1]
    assert json.loads((folder / "environment.json").read_text())["jax"] == jax.__version__
    best = int(run.history["step"][np.argmax(run.history["test_accuracy"])])
    assert steps(folder / "checkpoints") == sorted({best, 21})
    with pytest.raises(RunFolderError, match="choose another out="):
        pf.fit(MODEL, train, test, out=folder, **QUIET)


def test_a_folder_loads_as_a_run(data, tmp_path):
    train, test = data
    run = pf.fit(MODEL, train, test, out=tmp_path / "run", **QUIET)
    loaded = pf.load(tmp_path / "run", pf.mlp(16), train.x)
    assert pf.state_hash(loaded.state) == pf.state_hash(run.state)
    assert pf.evaluate(loaded, test) == pf.evaluate(run, test)
    best = pf.load(tmp_path / "run", pf.mlp(16), train.x, which="best")
    at = int(np.argmax(run.history["test_accuracy"]))
    assert int(best.state.step) == run.history["step"][at]
    with pytest.raises(CheckpointError, match="Expected"):
        pf.load(tmp_path / "run", pf.mlp(17), train.x)


def test_resuming_a_finished_run_gives_it_back(data, tmp_path):
    train, test = data
    run = pf.fit(MODEL, train, test, out=tmp_path / "run", **QUIET)
    again = pf.fit(MODEL, train, test, out=tmp_path / "run", resume=True, **QUIET)
    assert pf.state_hash(again.state) == pf.state_hash(run.state)
    assert again.timings.steps == 0
    assert again.history["test_loss"].tolist() == run.history["test_loss"].tolist()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 0.5}, "learning_rate = 0.001 in the saved run and 0.5 now"),
        ({"seed": 9}, "seed = 0 in the saved run and 9 now"),
        ({"epochs": 4}, "epochs = 3"),
        ({"batch_size": 8}, "batch_size = 16"),
    ],
)
def test_resuming_with_other_settings_is_refused_by_name(data, tmp_path, change, named):
    train, test = data
    pf.fit(MODEL, train, test, out=tmp_path / "run", **QUIET)
    with pytest.raises(CheckpointError, match=named):
        pf.fit(MODEL, train, test, out=tmp_path / "run", resume=True, **{**QUIET, **change})


def test_resuming_on_other_data_is_refused(data, tmp_path):
    train, test = data
    pf.fit(MODEL, train, test, out=tmp_path / "run", **QUIET)
    other = pf.Data(train.x + 1e-3, train.y)
    with pytest.raises(CheckpointError, match="got train_data ="):
        pf.fit(MODEL, other, test, out=tmp_path / "run", resume=True, **QUIET)


def test_a_damaged_step_is_named_and_the_one_before_is_used(data, tmp_path):
    train, test = data
    folder = tmp_path / "run"
    run = pf.fit(MODEL, train, test, out=folder, **QUIET)
    newest = folder / "checkpoints" / "step_00000021"
    victim = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    spoilt = bytearray(victim.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    victim.write_bytes(spoilt)
    with pytest.warns(PurefitWarning, match="step_00000021"):
        again = pf.fit(MODEL, train, test, out=folder, resume=True, **QUIET)
    assert again.timings.steps == 7
    assert pf.state_hash(again.state) == pf.state_hash(run.state)


def test_a_resumed_run_keeps_the_mode_it_was_begun_in(data, tmp_path, monkeypatch):
    train, _ = data
    settings = {**QUIET, "save_every_steps": 5, "keep_last": 9}
    run = pf.fit(pf.mlp(17), train, out=tmp_path / "run", **settings)
    assert run.mode == "scan"
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000021")
    monkeypatch.setattr("purefit.loop.programs.choose_mode", lambda *given: "step")
    _cached.cache_clear()
    again = pf.fit(pf.mlp(17), train, out=tmp_path / "run", resume=True, **settings)
    assert again.mode == "scan"
    assert pf.fit(pf.mlp(17), train, **QUIET).mode == "step"
    _cached.cache_clear()


def test_another_version_is_warned_about(data, tmp_path, monkeypatch):
    train, test = data
    pf.fit(MODEL, train, test, out=tmp_path / "run", **QUIET)
    monkeypatch.setattr("purefit.loop.keep.environment", lambda: {"jax": "9.9"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pf.fit(MODEL, train, test, out=tmp_path / "run", resume=True, **QUIET)
    texts = [str(warning.message) for warning in caught if warning.category is PurefitWarning]
    assert any(f"Expected jax {jax.__version__}" in text and "got 9.9" in text for text in texts)
