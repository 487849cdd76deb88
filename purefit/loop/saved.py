"""What a run folder says of itself, held against what its sealed steps say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purefit.errors import CheckpointError, RunFolderError
from purefit.io.checkpoints import newest, step_path, steps, verify
from purefit.io.folder import RunFolder
from purefit.io.manifest import Manifest
from purefit.loop.job import differences

__all__ = ["check_unedited", "find_step", "input_forms", "read_run"]

_RECORDED = ("settings", "record", "environment", "mode", "rows", "partial")


def read_run(folder: Path, which: str) -> tuple[dict[str, Any], Path, Manifest]:
    """Read the settings of a run and find a verified step of it; nothing is written.

    Args:
        folder: The run folder.
        which: "last" for the newest verified step, "best" for the best epoch's.

    Returns:
        What `run.toml` says, the folder of the step, and its manifest.

    Raises:
        RunFolderError: There is no run, or nothing saved.
        CheckpointError: What is saved is damaged, or `run.toml` is not as it was then.
    """
    with RunFolder.open(folder, lock=False) as opened:
        saved = opened.read_settings()
        path, manifest = find_step(opened.checkpoints, which)
    check_unedited(folder, saved, path, manifest)
    input_forms(saved, folder)
    return saved, path, manifest


def check_unedited(folder: Path, saved: Mapping[str, Any], path: Path, manifest: Manifest) -> None:
    """Refuse a `run.toml` that is not as it was when a step was saved.

    Args:
        folder: The run folder.
        saved: What its `run.toml` says.
        path: The folder of the step.
        manifest: The step's manifest.

    Raises:
        CheckpointError: Names the first difference, or what the step has not recorded.
    """
    record = manifest.record
    missing = [name for name in _RECORDED if name not in record]
    if missing:
        raise CheckpointError(
            f"Expected {path} to have {missing[0]} recorded, got a step without; use the version "
            "of purefit that wrote it."
        )
    table = saved.get("record")
    places = ("in the saved step", "there")
    difference = differences(record["settings"], saved, places) or differences(
        record["record"], table if isinstance(table, Mapping) else {}, places
    )
    if difference is not None:
        raise CheckpointError(
            f"Expected {folder / 'run.toml'} as it was when {path.name} was saved, got "
            f"{difference}; undo that edit."
        )


def find_step(checkpoints: Path, which: str) -> tuple[Path, Manifest]:
    """Find the newest verified step, or the one with the best score.

    Raises:
        RunFolderError: Nothing is saved.
        CheckpointError: All that is saved is damaged.
    """
    found = newest(checkpoints)
    if found is None:
        raise RunFolderError(
            f"Expected a saved step in {checkpoints}, got none; resume the run first."
        )
    if which == "last":
        return found
    scored = []
    for step in steps(checkpoints):
        path = step_path(checkpoints, step)
        try:
            manifest = verify(path)
        except CheckpointError:
            continue
        if manifest.score is not None:
            scored.append((manifest.score, -step, path, manifest))
    if not scored:
        return found
    _, _, path, manifest = max(scored, key=lambda one: one[:2])
    return path, manifest


def input_forms(saved: Mapping[str, Any], folder: Path) -> list[jax.ShapeDtypeStruct]:
    """Give shape and dtype of one example of each input array, as `run.toml` has them.

    Raises:
        RunFolderError: The table `record` does not say them, or not how many examples there were.
    """
    try:
        table = saved["record"]
        shapes, names = table["input_shapes"], table["input_dtypes"]
        if not (shapes and isinstance(table["examples"], int) and table["examples"] > 0):
            raise ValueError("no examples")
        pairs = zip(shapes, names, strict=True)
        return [jax.ShapeDtypeStruct(tuple(shape), np.dtype(name)) for shape, name in pairs]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFolderError(
            f"Expected the table [record] of {folder / 'run.toml'} to describe the training data, "
            "got something else; undo the edit, or start the run again with another out=."
        ) from error
