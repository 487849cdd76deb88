"""What a run leaves behind: a frozen record, and the history that grows into it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from purefit.core.settings import Hyper, Plan
from purefit.core.state import TrainState
from purefit.core.step import Info
from purefit.core.types import Model, PyTree, Variables

__all__ = ["History", "Run", "Tally", "Timings", "as_columns"]

History = Mapping[str, np.ndarray]
"""Columns by name, one row an epoch: `epoch`, `step`, `train_loss`, `test_accuracy`, ..."""


@dataclass(frozen=True)
class Timings:
    """Where the seconds of one call of `fit` went.

    Attributes:
        compile: Tracing, lowering and compiling.
        run: Training steps, from the first to the last.
        evaluate: Evaluation of the validation data.
        save: Checkpoints, as far as the training had to wait for them.
        total: All of the call.
        steps: Steps taken in this call (a resumed run has taken others before).
    """

    compile: float = 0.0
    run: float = 0.0
    evaluate: float = 0.0
    save: float = 0.0
    total: float = 0.0
    steps: int = 0


@final
@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        model: The model that was trained, with its width of output known.
        plan: The static settings.
        hyper: The hyperparameters, with their defaults filled in.
        seed: The seed of all randomness.
        state: The final state.
        history: Columns by name with one row an epoch: `epoch` and `step` (both counted from 1),
            `train_loss` and metrics over the epoch's batches as they were trained on, and with
            validation data `test_loss` and metrics after the epoch.
        timings: Where the seconds went.
        mode: The execution mode: "scan", "unroll" or "step".
        folder: The run folder, or None.
    """

    model: Model
    plan: Plan
    hyper: Hyper
    seed: int
    state: TrainState = field(repr=False)
    history: History = field(repr=False)
    timings: Timings
    mode: str
    folder: Path | None = None

    @property
    def params(self) -> PyTree:
        """The trained parameters."""
        return self.state.params

    @property
    def variables(self) -> Variables:
        """The parameters together with the model's other state."""
        return Variables(self.state.params, self.state.model_state)


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Turn rows into columns."""
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


@final
class Tally:
    """Adds up, step by step and in float64, what the steps of an epoch tell.

    Since each step is added on its own and in its turn, the result does not depend on how the epoch
    was cut into segments or interrupted.
    """

    def __init__(self, partial: Mapping[str, Sequence[float]] | None = None) -> None:
        self.sums = {name: (float(pair[0]), int(pair[1])) for name, pair in (partial or {}).items()}

    def add(self, info: Info, rows: int | None = None) -> None:
        """Add the first `rows` rows (all, if None) of what compiled steps told."""
        for name, mean in info.items():
            total, count = self.sums.get(name, (0.0, 0))
            totals = np.atleast_1d(np.asarray(mean.total))[:rows].tolist()
            counts = np.atleast_1d(np.asarray(mean.count))[:rows].tolist()
            for one, several in zip(totals, counts, strict=True):
                total, count = total + one, count + several
            self.sums[name] = (total, count)

    def means(self, prefix: str) -> dict[str, float]:
        """Divide once, at the end; the loss comes first."""
        names = sorted(self.sums, key=lambda name: (name != "loss", name))
        return {f"{prefix}{name}": self.sums[name][0] / self.sums[name][1] for name in names}
