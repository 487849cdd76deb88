"""Between the loop and the disk: what of a run is kept, when, and how it is found again."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, final

import jax
import numpy as np

from purefit.core.settings import Plan
from purefit.core.state import TrainState
from purefit.errors import CheckpointError, PurefitWarning, RunFolderError
from purefit.io.checkpoints import Saver, clear_leftovers, newest, restore
from purefit.io.fingerprint import data_fingerprint
from purefit.io.folder import RunFolder, environment
from purefit.io.manifest import Manifest
from purefit.loop.job import Job, differences
from purefit.loop.saved import check_unedited
from purefit.loop.settings import as_path

__all__ = ["Keeper", "open_keeper", "score"]

Restored = tuple[TrainState, int, Mapping[str, Any]]
"""A state, the number of its step, and what was recorded with it."""


class Keeper(Protocol):
    """What the loop needs of whatever keeps the run."""

    @property
    def folder(self) -> Path | None:
        """The run folder."""
        ...

    @property
    def saves(self) -> bool:
        """Whether anything is kept at all."""
        ...

    @property
    def seconds(self) -> float:
        """How long the loop has waited for the disk."""
        ...

    def plan_for(self, plan: Plan) -> Plan:
        """Give the plan with the execution mode that a resumed run was begun in."""
        ...

    def restore(self, form: TrainState) -> Restored | None:
        """Give the newest verified state, or None for a new run."""
        ...

    def begin(self, mode: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Training begins now, with so much history behind it."""
        ...

    def row(self, row: Mapping[str, Any]) -> None:
        """Keep a row of the history."""
        ...

    def due(self, step: int, epoch: int | None) -> bool:
        """Whether to save after `step`; `epoch` is the number of epochs if one has just ended."""
        ...

    def save(self, step: int, state: TrainState, record: Mapping[str, Any]) -> None:
        """Save a state."""
        ...

    def finish(self) -> None:
        """Wait until everything is on disk."""
        ...

    def saved_text(self) -> str:
        """Say for an error message what is saved."""
        ...


@contextmanager
def open_keeper(job: Job, out: str | Path | None, resume: bool) -> Iterator[Keeper]:
    """Open the run folder of a job, or keep nothing if there is to be none.

    Raises:
        RunFolderError: The folder is in use, not empty, or of another run.
    """
    if out is None:
        if resume:
            raise RunFolderError("Expected a run folder to resume from, got none; give it as out=.")
        yield _Nothing()
        return
    path = as_path(out, "out")
    prints = {"train_data": data_fingerprint(job.train)}
    if job.valid is not None:
        prints["valid_data"] = data_fingerprint(job.valid)
    found = resume and (path / "run.toml").exists()
    with RunFolder.open(path) if found else RunFolder.create(path) as folder:
        keeper = _Folder(job, folder, prints)
        if found:
            keeper.look()
        else:
            folder.write_settings({**job.settings, "record": keeper.table})
            folder.write_environment()
        try:
            yield keeper
        finally:
            keeper.close()


@final
class _Nothing:
    """Keeps nothing."""

    folder = None
    saves = False
    seconds = 0.0

    def plan_for(self, plan: Plan) -> Plan:
        return plan

    def restore(self, form: TrainState) -> Restored | None:
        return None

    def begin(self, mode: str, rows: Sequence[Mapping[str, Any]]) -> None:
        pass

    def row(self, row: Mapping[str, Any]) -> None:
        pass

    def due(self, step: int, epoch: int | None) -> bool:
        return False

    def save(self, step: int, state: TrainState, record: Mapping[str, Any]) -> None:
        pass

    def finish(self) -> None:
        pass

    def saved_text(self) -> str:
        return ""


@final
class _Folder:
    """Keeps the run in its folder."""

    saves = True

    def __init__(self, job: Job, folder: RunFolder, prints: Mapping[str, str]) -> None:
        self.folder = folder.path
        self.seconds = 0.0
        self._job, self._opened, self._prints = job, folder, prints
        self.table = {**_form(job), **prints}
        self._found: tuple[Path, Manifest] | None = None
        self._saver: Saver | None = None
        self._fixed: dict[str, Any] = {}
        self._last = time.monotonic()

    def look(self) -> None:
        """Compare the folder with the job, and find the newest verified step."""
        saved = self._opened.read_settings()
        given = {**self._job.settings, "record": self._prints}
        record = saved.get("record")
        record = record if isinstance(record, Mapping) else {}
        difference = differences(saved, given) or differences(
            {name: record.get(name) for name in self._prints}, self._prints
        )
        if difference is not None:
            raise CheckpointError(
                f"Expected the settings and data of the run in {self.folder}, got {difference}; "
                "resume with the same ones or start another run."
            )
        clear_leftovers(self._opened.checkpoints)
        self._found = newest(self._opened.checkpoints)
        if self._found is not None:
            check_unedited(self.folder, saved, *self._found)
            _warn_of_changes(self._found[1].record["environment"])

    def plan_for(self, plan: Plan) -> Plan:
        if self._found is None or plan.mode != "auto":
            return plan
        return replace(plan, mode=self._found[1].record["mode"])

    def restore(self, form: TrainState) -> Restored | None:
        if self._found is None:
            return None
        path, manifest = self._found
        return restore(path, manifest, form), manifest.step, manifest.record

    def begin(self, mode: str, rows: Sequence[Mapping[str, Any]]) -> None:
        saving = self._job.saving
        self._fixed = {
            "mode": mode,
            "settings": dict(self._job.settings),
            "environment": environment(),
            "record": self.table,
        }
        self._opened.write_history([dict(row) for row in rows])
        self._saver = Saver(self._opened.checkpoints, saving.keep_last, saving.keep_best)
        self._last = time.monotonic()

    def row(self, row: Mapping[str, Any]) -> None:
        self._opened.append_history(dict(row))

    def due(self, step: int, epoch: int | None) -> bool:
        saving = self._job.saving
        by_epoch = epoch and saving.save_every_epochs and epoch % saving.save_every_epochs == 0
        by_step = saving.save_every_steps and step % saving.save_every_steps == 0
        seconds = saving.save_every_seconds
        by_time = seconds is not None and time.monotonic() - self._last >= seconds
        return bool(by_epoch or by_step or by_time)

    def save(self, step: int, state: TrainState, record: Mapping[str, Any]) -> None:
        assert self._saver is not None
        begin = time.perf_counter()
        ended = record["rows"] and record["rows"][-1]["step"] == step
        best = score(record["rows"][-1]) if ended else None
        self._saver.save(step, state, {**self._fixed, **record}, best)
        self._last = time.monotonic()
        self.seconds += time.perf_counter() - begin

    def finish(self) -> None:
        begin = time.perf_counter()
        if self._saver is not None:
            self._saver.wait()
        self.seconds += time.perf_counter() - begin

    def saved_text(self) -> str:
        assert self._saver is not None
        self.finish()
        step = self._saver.saved_step
        if step is None and self._found is not None:
            step = self._found[1].step
        if step is None:
            return "; nothing is saved yet"
        return f"; step {step} is saved in {self.folder}"

    def close(self) -> None:
        """End the background thread; what it is writing is finished first."""
        if self._saver is not None:
            self._saver.close()


def _warn_of_changes(saved: Mapping[str, Any]) -> None:
    now = environment()
    for name, before in saved.items():
        if name != "platform" and now.get(name) != before:
            warnings.warn(
                f"Expected {name} {before} as when the run was saved, got {now.get(name)}; "
                "the run goes on, but the same bits are promised only for the same versions "
                "and hardware.",
                PurefitWarning,
                stacklevel=2,
            )


def score(row: Mapping[str, Any]) -> float:
    """Give the number by which a row is the best of its run: higher is better."""
    for name, sign in (
        ("test_accuracy", 1.0),
        ("test_loss", -1.0),
        ("train_accuracy", 1.0),
        ("train_loss", -1.0),
    ):
        if name in row:
            return sign * float(row[name])
    return 0.0


def _form(job: Job) -> dict[str, Any]:
    """Describe the inputs, so that `purefit predict` knows what it may be given."""
    leaves = jax.tree.leaves(job.train.x)
    form: dict[str, Any] = {
        **job.notes,
        "input_shapes": [list(leaf.shape[1:]) for leaf in leaves],
        "input_dtypes": [str(leaf.dtype) for leaf in leaves],
        "examples": int(leaves[0].shape[0]),
    }
    outputs = getattr(job.model, "outputs", None)
    if outputs is not None:
        form["outputs"] = outputs
    if len(leaves) == 1 and leaves[0].dtype == np.uint8:
        form["input_mean"] = float(np.asarray(leaves[0][:1000]).mean())
    return form
