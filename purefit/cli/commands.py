"""What each command does: read what it needs, call the library, print."""

import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from purefit.cli.config import options_of
from purefit.cli.models import model_named
from purefit.cli.options import Evaluate, Predict, Resume, Train, Verify
from purefit.core.checks import check_same_form, normalise
from purefit.core.settings import Hyper, Plan
from purefit.errors import CheckpointError, DataError, RunFolderError, SettingsError
from purefit.io.datasets import Dataset, load
from purefit.io.fingerprint import state_hash
from purefit.io.folder import RunFolder, name_run
from purefit.io.images import read_examples
from purefit.io.progress import make_reporter
from purefit.loop.fit import train_job
from purefit.loop.inference import evaluate, predict
from purefit.loop.inference import load as load_run
from purefit.loop.job import Job, make_job
from purefit.loop.record import Run
from purefit.loop.saved import input_forms
from purefit.loop.settings import Saving
from purefit.loop.verify import verify

__all__ = ["run_command"]

_SETTINGS = [field.name for record in (Hyper, Plan, Saving) for field in fields(record)]


def run_command(options: Any) -> None:
    """Do what the options ask for."""
    commands: dict[type, Callable[[Any], None]] = {
        Train: _train,
        Resume: _resume,
        Evaluate: _evaluate,
        Predict: _predict,
        Verify: _verify,
    }
    commands[type(options)](options)


def _train(options: Train) -> None:
    job, dataset = _job(options)
    label = Path(options.model.split(":")[0]).stem
    name = name_run(Path("runs"), _short(dataset.name), label, datetime.now())
    out = name if options.out is None else options.out
    run = train_job(job, out, False, make_reporter(options.progress))
    _print_run(run, options.json)


def _resume(options: Resume) -> None:
    saved = _saved_options(options.run, options.model)
    job, _ = _job(saved)
    run = train_job(job, options.run, True, make_reporter(options.progress))
    _print_run(run, options.json)


def _job(options: Train) -> tuple[Job, Dataset]:
    """Make a job of the options of `train`."""
    if options.data is None:
        raise SettingsError("Expected data to train on, got none; try: purefit train mnist.")
    model = model_named(options.model, options.hidden, options.channels)
    given = asdict(options)
    settings = {
        name: given[name]
        for name in _SETTINGS
        if name in given and (given[name] is not None or name.startswith("save_"))
    }
    description = {
        name: list(given[name]) if isinstance(given[name], tuple) else given[name]
        for name in ("data", "model", "hidden", "channels")
        if given[name] is not None
    }
    dataset = load(options.data)
    notes = {} if dataset.classes is None else {"classes": list(dataset.classes)}
    job = make_job(model, dataset.train, dataset.test, options.seed, settings, description, notes)
    return job, dataset


def _saved_options(folder: str, model: str | None) -> Train:
    """Read the options of `train` back from a run folder."""
    with RunFolder.open(Path(folder), lock=False) as opened:
        saved = opened.read_settings()
    names = {field.name for field in fields(Train)}
    given = {name: value for name, value in saved.items() if name in names}
    if given.get("data") == "arrays":
        raise SettingsError(
            f"Expected a run made by purefit train, got one made in Python in {folder}; "
            "go on there, with pf.fit(..., resume=True) or pf.load."
        )
    missing = [name for name in ("data", "model", "seed") if name not in given]
    if missing:
        raise RunFolderError(
            f"Expected {Path(folder, 'run.toml')} to say {missing[0]}, got nothing of it; undo the "
            "edit, or start the run again with another --out."
        )
    options = options_of(given, str(Path(folder, "run.toml")))
    _check_model(options.model, model, folder)
    return replace(options, save_every_epochs=given.get("save_every_epochs"))


def _check_model(saved: str, given: str | None, folder: str) -> None:
    """A folder names no code: a model from a file has to be named again."""
    if saved in ("mlp", "cnn"):
        if given not in (None, saved):
            raise SettingsError(
                f"Expected the model of the run, {saved}, got {given!r}; leave --model out."
            )
    elif given is None:
        raise SettingsError(
            f"Expected --model {saved} again, got none; the run in {folder} was trained with a "
            "model from a file, and a folder never runs code by itself."
        )
    elif given != saved:
        raise SettingsError(
            f"Expected --model {saved} as when the run began, got {given!r}; name the same one."
        )


def _open_run(folder: str, which: str, model: str | None) -> tuple[Run, Train, dict[str, Any]]:
    """Load a run for evaluation or prediction, without loading its data."""
    options = _saved_options(folder, model)
    with RunFolder.open(Path(folder), lock=False) as opened:
        saved = opened.read_settings()
    form = input_forms(saved, Path(folder))[0]
    network = model_named(options.model, options.hidden, options.channels)
    like = np.zeros((1, *form.shape), form.dtype)
    return load_run(folder, network, like, which=which), options, saved["record"]


def _evaluate(options: Evaluate) -> None:
    run, saved, record = _open_run(options.run, options.which, options.model)
    assert saved.data is not None
    dataset = load(options.data or saved.data)
    data = dataset.test if options.split == "test" else dataset.train
    if data is None:
        raise DataError(f"Expected a test split in {dataset.name}, got none; use --split train.")
    data = normalise(data, f"the {options.split} data")
    like = np.zeros((1, *record["input_shapes"][0]), record["input_dtypes"][0])
    check_same_form(like, data.x, ("the training data", f"{dataset.name} ({options.split})"))
    scores = evaluate(run, data)
    step = int(run.state.step)
    if options.json:
        print(json.dumps({"run": options.run, "step": step, "split": options.split, **scores}))
        return
    print(f"step {step}, {options.split} split of {dataset.name}")
    for name, value in scores.items():
        print(f"{name} {value:.6f}")


def _predict(options: Predict) -> None:
    if not options.files:
        raise DataError(
            "Expected images or arrays to predict, got none; try: purefit predict RUN digit.png."
        )
    run, _, record = _open_run(options.run, options.which, options.model)
    names, inputs = read_examples(
        options.files,
        tuple(record["input_shapes"][0]),
        np.dtype(record["input_dtypes"][0]),
        invert=options.invert,
        resize=options.resize,
        dark=record.get("input_mean", 255.0) < 128,
    )
    outputs = np.asarray(predict(run, inputs))
    rows = [
        _prediction(name, output, run.plan.loss == "cross_entropy", record.get("classes"))
        for name, output in zip(names, outputs, strict=True)
    ]
    if options.json:
        print(json.dumps({"run": options.run, "predictions": rows}))
        return
    for row in rows:
        if "class" in row:
            print(f"{row['file']}: {row['class']} (probability {row['probability']:.3f})")
        else:
            print(f"{row['file']}: {row['output']}")


def _prediction(name: str, output: Any, classes: bool, names: Any) -> dict[str, Any]:
    if not classes:
        return {"file": name, "output": np.asarray(output).tolist()}
    shifted = np.exp(output - output.max())
    probabilities = shifted / shifted.sum()
    best = int(probabilities.argmax())
    return {
        "file": name,
        "class": names[best] if names else best,
        "probability": float(probabilities[best]),
        "probabilities": [round(float(p), 6) for p in probabilities],
    }


def _verify(options: Verify) -> None:
    saved = _saved_options(options.run, options.model)
    if options.epochs < 1 or options.kills < 1:
        raise SettingsError(
            f"Expected epochs and kills of at least 1, got {options.epochs} and {options.kills}; "
            "change them."
        )
    result = verify(
        Path(options.run),
        epochs=options.epochs,
        kills=options.kills,
        seed=options.seed,
        model=saved.model,
    )
    if options.json:
        print(json.dumps(result))
    else:
        verdict = "the same bits" if result["exact"] else "OTHER BITS"
        print(f"uninterrupted       {result['hash']}")
        print(f"killed and resumed  {result['resumed_hash']}")
        killed = ", ".join(str(step) for step in result["killed_at_steps"])
        print(f"{verdict} after {result['steps']} steps, killed after step {killed}")
    if not result["exact"]:
        raise CheckpointError(
            "Expected the same bits from both runs, got other ones; report it with the folder's "
            "environment.json."
        )


def _print_run(run: Run, as_json: bool) -> None:
    last = {name: column[-1].item() for name, column in run.history.items()}
    steps = int(run.state.step)
    timings = {f"{name}_seconds": value for name, value in asdict(run.timings).items()}
    timings.pop("steps_seconds")
    if as_json:
        found = {
            "run": str(run.folder),
            "epochs": last["epoch"],
            "steps": steps,
            **{name: value for name, value in last.items() if name not in ("epoch", "step")},
            **{name: round(value, 4) for name, value in timings.items()},
            "mode": run.mode,
            "seed": run.seed,
            "state_hash": state_hash(run.state),
        }
        print(json.dumps(found))
        return
    score = (
        f"test accuracy {100 * last['test_accuracy']:.2f} %"
        if "test_accuracy" in last
        else (f"train loss {last['train_loss']:.4f}")
    )
    t = run.timings
    print(f"{score} after {last['epoch']} epochs ({steps} steps, mode {run.mode})")
    print(
        f"compiling {t.compile:.1f} s, training {t.run:.1f} s, evaluating {t.evaluate:.1f} s, "
        f"saving {t.save:.1f} s, in all {t.total:.1f} s"
    )
    print(f"saved in {run.folder}")


def _short(name: str) -> str:
    return Path(name.replace("openml:", "")).stem or "data"
