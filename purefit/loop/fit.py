"""The host's loop: run a segment, look, save, report, decide."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack, final

import jax
import numpy as np

from purefit.core.batches import take
from purefit.core.state import TrainState
from purefit.core.types import Data, Variables
from purefit.errors import Interrupted, NonFiniteError
from purefit.io.progress import Reporter, make_reporter
from purefit.loop.job import Job, make_job
from purefit.loop.keep import Keeper, open_keeper
from purefit.loop.programs import Programs, form_of, programs_for
from purefit.loop.record import Run, Tally, Timings, as_columns
from purefit.loop.room import room
from purefit.loop.settings import Settings
from purefit.loop.signals import Flag, listening

__all__ = ["fit", "train_job"]

_LOOK_EVERY = 0.5
"""Seconds that a segment should take: how soon a signal is noticed and progress shown."""


def fit(
    model: Any,
    train: Any,
    valid: Any = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    progress: str = "auto",
    **settings: Unpack[Settings],
) -> Run:
    """Train a model on data in memory.

    Args:
        model: `pf.mlp(...)`, `pf.cnn(...)`, a pair `(init, apply)` of functions, a Flax Linen or
            NNX module, an Equinox module, or a factory of one of the last two.
        train: Training examples: a pair `(x, y)` or `pf.Data`, each side an array or a pytree of
            arrays with the examples along the first axis. uint8 inputs are scaled to [0, 1] inside
            the step.
        valid: Validation examples in the same form, evaluated after every epoch; their columns in
            the history begin with `test_`.
        seed: The seed of all randomness, from 0 to 2**32 - 1.
        out: A folder for the run: settings, history and checkpoints. None keeps nothing.
        resume: Go on from the newest verified checkpoint in `out`; where there is none, start.
        progress: "auto", "rich", "plain" or "none"; written to standard error.
        **settings: Hyperparameters (`pf.Hyper`), static settings (`pf.Plan`) and when to save
            (`pf.Saving`), by name.

    Returns:
        The finished run as a frozen record.

    Raises:
        InputError: Data, model, settings or folder do not fit; raised before any compilation.
        NonFiniteError: The loss became NaN or infinite.
        SaveError: A checkpoint could not be written.
        Interrupted: Ctrl-C or SIGTERM came, in a run with a folder; it was saved first.
    """
    job = make_job(model, train, valid, seed, settings)
    return train_job(job, out, resume, make_reporter(progress))


def train_job(job: Job, out: str | Path | None, resume: bool, reporter: Reporter) -> Run:
    """Train a job that is already checked; see `fit`."""
    with room(), ExitStack() as stack:
        flag = stack.enter_context(listening(out is not None))
        keeper = stack.enter_context(open_keeper(job, out, resume))
        stack.callback(reporter.end)
        return _Loop(job, keeper, reporter, flag).run()


@final
class _Loop:
    """One call of `fit` at work: the state on the device, and what the host knows of it."""

    def __init__(self, job: Job, keeper: Keeper, reporter: Reporter, flag: Flag) -> None:
        self.begun = time.perf_counter()
        self.job, self.keeper, self.reporter, self.flag = job, keeper, reporter, flag
        valid = None if job.valid is None else form_of(job.valid)
        plan = keeper.plan_for(job.plan)
        self.programs = programs_for(job.model, plan, job.hyper, form_of(job.train), valid)
        self.compiled_before = self.programs.seconds
        self.hyper = job.traced
        self.rows: list[dict[str, Any]] = []
        self.tally = Tally()
        self.seconds = {"run": 0.0, "evaluate": 0.0}
        self.lap = (0, 0.0)
        self.step = self.first = 0
        self.pace = 32

    def run(self) -> Run:
        """Train to the end."""
        programs, job = self.programs, self.job
        total = programs.total_steps
        self.reporter.begin(job.plan.epochs, total, 0)
        state = self._begin()
        order, epoch = None, -1
        while self.step < total:
            if self.step // programs.batches.steps != epoch:
                epoch = self.step // programs.batches.steps
                order = programs.order(state.key, epoch)
            state = self._segment(state, order, epoch)
            ended = self.step % programs.batches.steps == 0
            if ended:
                self._end_epoch(state, epoch)
            self._keep(state, ended)
        self.keeper.finish()
        return self._record(state)

    def _begin(self) -> TrainState:
        steps = self.programs.batches.steps
        saved = self.keeper.restore(self.programs.state_form)
        if saved is not None:
            state, self.step, record = saved
            self.first = self.step
            self.rows = list(record["rows"])
            self.tally = Tally(record["partial"])
            self.reporter.note(f"resuming after step {self.step}")
            self.reporter.begin(self.job.plan.epochs, self.programs.total_steps, self.step)
        if self.step < self.programs.total_steps:
            self.programs.prepare(self.step % steps, resumed=saved is not None)
        if saved is None:
            state = self.programs.start(self.hyper, jax.random.key(self.job.seed))
        self.keeper.begin(self.programs.mode, self.rows)
        return state

    def _segment(self, state: TrainState, order: Any, epoch: int) -> TrainState:
        first, count = self._cut(epoch)
        before = self.programs.seconds
        begin = time.perf_counter()
        state, infos = self.programs.advance(
            state, self.hyper, self.job.train, order, epoch, first, count
        )
        fetched = jax.device_get(infos)
        seconds = time.perf_counter() - begin - (self.programs.seconds - before)
        self.seconds["run"] += seconds
        losses = np.concatenate([np.atleast_1d(info["loss"].total)[:n] for info, n in fetched])
        if not np.isfinite(losses).all():
            self._diverged(state, order, int(np.argmin(np.isfinite(losses))), losses)
        for info, rows in fetched:
            self.tally.add(info, rows)
        self.step += count
        self.pace = max(1, min(int(count * _LOOK_EVERY / max(seconds, 1e-6)), 4 * self.pace))
        self.lap = (self.lap[0] + count, self.lap[1] + seconds)
        rate = self.lap[0] / max(self.lap[1], 1e-9)
        self.reporter.steps(epoch, self.step, self.tally.means(""), rate)
        return state

    def _cut(self, epoch: int) -> tuple[int, int]:
        """Choose the next segment: up to the end of the epoch, a save, or the next look."""
        batches = self.programs.batches
        first = self.step - epoch * batches.steps
        end = min(batches.steps, first + self.pace)
        if self.programs.mode == "unroll" and end < batches.steps:
            end = max(end - end % self.job.plan.unroll, first - first % self.job.plan.unroll)
            end = end if end > first else min(batches.steps, end + self.job.plan.unroll)
        every = self.job.saving.save_every_steps if self.keeper.saves else None
        if every is not None:
            end = min(end, first + every - self.step % every)
        return first, end - first

    def _end_epoch(self, state: TrainState, epoch: int) -> None:
        row: dict[str, Any] = {"epoch": epoch + 1, "step": self.step, **self.tally.means("train_")}
        self.tally = Tally()
        self.lap = (0, 0.0)
        if self.job.valid is not None:
            before = self.programs.seconds
            begin = time.perf_counter()
            variables = Variables(state.params, state.model_state)
            scores = Tally()
            for info in jax.device_get(
                self.programs.evaluate(variables, self.hyper, self.job.valid)
            ):
                scores.add(info)
            row |= scores.means("test_")
            compiled = self.programs.seconds - before
            self.seconds["evaluate"] += time.perf_counter() - begin - compiled
        self.rows.append(row)
        self.keeper.row(row)
        self.reporter.row(row, self.job.plan.epochs)

    def _keep(self, state: TrainState, ended: bool) -> None:
        """Save if it is time to, and stop if a signal came."""
        last = self.step == self.programs.total_steps
        record = {"rows": self.rows, "partial": self.tally.sums}
        stopping = self.flag.signal_number is not None and not last
        epoch = self.step // self.programs.batches.steps if ended else None
        if stopping or last or self.keeper.due(self.step, epoch):
            self.keeper.save(self.step, state, record)
        if stopping:
            self.keeper.finish()
            number = self.flag.signal_number
            assert number is not None
            from_python = self.job.settings["data"] == "arrays"
            again = "pf.fit(..., resume=True) and out=" if from_python else "purefit resume"
            raise Interrupted(
                f"Stopped by a signal after step {self.step}, which is saved; "
                f"go on with: {again} {self.keeper.folder}",
                signal_number=number,
                step=self.step,
            )

    def _diverged(self, state: TrainState, order: Any, ahead: int, losses: Any) -> None:
        step = self.step + ahead
        leaf = _first_bad(self.programs, state, self.hyper, self.job.train, order)
        saved = self.keeper.saved_text()
        raise NonFiniteError(
            f"Expected a finite loss, got {losses[ahead]} at step {step} (epoch "
            f"{step // self.programs.batches.steps + 1}), first in {leaf}; lower learning_rate, "
            f"set clip_norm or look at the data{saved}.",
            step=step,
            leaf=leaf,
        )

    def _record(self, state: TrainState) -> Run:
        job = self.job
        timings = Timings(
            compile=self.programs.seconds - self.compiled_before,
            run=self.seconds["run"],
            evaluate=self.seconds["evaluate"],
            save=self.keeper.seconds,
            total=time.perf_counter() - self.begun,
            steps=self.step - self.first,
        )
        return Run(
            model=job.model,
            plan=job.plan,
            hyper=job.hyper,
            seed=job.seed,
            state=state,
            history=as_columns(self.rows),
            timings=timings,
            mode=self.programs.mode,
            folder=self.keeper.folder,
        )


def _first_bad(programs: Programs, state: TrainState, hyper: Any, train: Data, order: Any) -> str:
    """Find where a non-finite loss comes from, in a state that stands still before its step."""
    places: Mapping[str, Any] = {"params": state.params, "model_state": state.model_state}
    for name, tree in places.items():
        bad = _bad_leaf(tree)
        if bad is not None:
            return name + bad
    batches = programs.batches
    place = int(state.step) % batches.steps
    size = batches.size if place < batches.full else batches.short
    grads = programs.gradients(state, hyper, take(train, order, place * batches.size, size))
    bad = _bad_leaf(grads)
    return "the loss alone" if bad is None else f"the gradient of params{bad}"


def _bad_leaf(tree: Any) -> str | None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        floating = jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
        if floating and not bool(jax.numpy.isfinite(leaf).all()):
            return jax.tree_util.keystr(path)
    return None
