"""Checkpoints: saving in the background while the device goes on, and what else a run needs.

What a step on the disk is, is in `purefit.io.steps`; its seal is in `purefit.io.manifest`, the way
back in `purefit.io.restore`. Their functions can be imported from here.
"""

import concurrent.futures.thread  # noqa: F401  (its exit hook must be older than ours)
import json
import math
import threading
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from purefit.core.types import PyTree
from purefit.errors import CheckpointError, PurefitWarning, SaveError
from purefit.io.fingerprint import Leaf, host_leaves
from purefit.io.manifest import Manifest, read, verify
from purefit.io.restore import restore
from purefit.io.steps import clear_leftovers, is_whole, newest, prune, step_path, steps, write

__all__ = [
    "Manifest",
    "Saver",
    "clear_leftovers",
    "newest",
    "prune",
    "restore",
    "step_path",
    "steps",
    "verify",
    "write",
]


@final
class Saver:
    """Copies a state to the host at once and writes it in a thread, one step at a time.

    An error of the thread is raised by the next `save`, `wait` or `close`. A process that ends
    normally waits for the thread. As a context manager it closes itself.

    Attributes:
        saved_step: The newest step that this saver finished, or found already saved.
        seconds_blocking: Time that `save` and `wait` took from the caller so far.
        seconds_writing: Time that the thread wrote and pruned so far.
    """

    def __init__(self, root: Path, keep_last: int, keep_best: bool) -> None:
        """Open the folder of a run's steps.

        Args:
            root: The folder; made by the first save if it is missing.
            keep_last: How many of the newest steps are kept, at least 1.
            keep_best: Keep the step with the highest score too (of equals the earliest).
        """
        self.saved_step: int | None = None
        self.seconds_blocking = 0.0
        self.seconds_writing = 0.0
        self._root = root
        self._keep_last = max(1, keep_last)
        self._keep_best = keep_best
        self._scores = _scores_in(root)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        _savers.add(self)

    @property
    def best_step(self) -> int | None:
        """The saved step with the highest score; None where no step has one."""
        return max(self._scores, key=lambda step: (self._scores[step], -step), default=None)

    def save(
        self, step: int, tree: PyTree, record: Mapping[str, Any], score: float | None = None
    ) -> None:
        """Save a step; a step that is already saved whole is left as it is.

        Args:
            step: Number of finished training steps.
            tree: The state; it may be donated as soon as this returns.
            record: JSON data to keep with it; it may be changed as soon as this returns.
            score: How good the step is, higher is better; NaN counts as none.

        Raises:
            SaveError: The save before this one failed.
            TypeError: The record is no JSON data.
        """
        self.wait()
        started = time.perf_counter()
        frozen = json.loads(json.dumps(record))
        score = None if score is None or math.isnan(score) else float(score)
        work = (step, host_leaves(tree), frozen, score)
        self._thread = threading.Thread(
            target=self._work, args=work, name="purefit-saver", daemon=False
        )
        self._thread.start()
        self.seconds_blocking += time.perf_counter() - started

    def wait(self) -> None:
        """Wait for the write in flight, if any.

        Raises:
            SaveError: It failed.
        """
        started = time.perf_counter()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.seconds_blocking += time.perf_counter() - started
        error, self._error = self._error, None
        if isinstance(error, SaveError):
            raise SaveError(str(error)) from error
        if error is not None:
            raise SaveError(
                f"Expected to save in {self._root}, got {type(error).__name__}: {error}; "
                "the steps saved before are untouched."
            ) from error

    def close(self) -> None:
        """Wait for the write in flight; the same as `wait`, for whoever is done."""
        self.wait()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _work(
        self, step: int, leaves: Sequence[Leaf], record: dict[str, Any], score: float | None
    ) -> None:
        started = time.perf_counter()
        try:
            if not is_whole(step_path(self._root, step)):
                write(self._root, step, leaves, record, score)
                self._scores.pop(step, None)
                if score is not None:
                    self._scores[step] = score
            self.saved_step = step
            self._prune(step)
        except Exception as error:
            self._error = error
        self.seconds_writing += time.perf_counter() - started

    def _prune(self, just_saved: int) -> None:
        keep = {just_saved, *steps(self._root)[-self._keep_last :]}
        if self._keep_best and self.best_step is not None:
            keep.add(self.best_step)
        prune(self._root, keep)
        self._scores = {step: score for step, score in self._scores.items() if step in keep}


def _scores_in(root: Path) -> dict[int, float]:
    scores = {}
    for step in steps(root):
        try:
            score = read(step_path(root, step)).score
        except CheckpointError:
            continue
        if score is not None:
            scores[step] = score
    return scores


_savers: "weakref.WeakSet[Saver]" = weakref.WeakSet()


def _finish_all() -> None:
    for saver in list(_savers):
        try:
            saver.close()
        except SaveError as error:
            warnings.warn(str(error), PurefitWarning, stacklevel=1)


# The interpreter has to wait for savers before it forbids new threads, which Orbax needs; `atexit`
# comes too late for that. The hook that thread pools use has no public name: where it is missing,
# only closing a saver is safe.
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_finish_all)
