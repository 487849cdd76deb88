"""The compiled programs of a run, and the cutting of a segment into calls of them."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from purefit.core.batches import Batching, batching, epoch_order
from purefit.core.run import (
    choose_mode,
    gradients_at,
    scores_of,
    segment,
    start_run,
    step_of,
    straight,
)
from purefit.core.settings import Hyper, Plan
from purefit.core.state import TrainState
from purefit.core.step import Info
from purefit.core.types import Data, Key, Model, PyTree, Variables

__all__ = ["Form", "Programs", "form_of", "pieces", "programs_for"]


class Form(NamedTuple):
    """Tree structure, shapes and dtypes of data: all that a program knows of them."""

    treedef: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]

    @property
    def examples(self) -> int:
        """Length of the first axis."""
        return self.leaves[0][0][0]

    def shapes(self) -> Any:
        """Give the tree of shapes and dtypes."""
        return self.treedef.unflatten(
            [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.leaves]
        )


def form_of(data: PyTree) -> Form:
    """Look at the form of some data."""
    leaves, treedef = jax.tree.flatten(data)
    return Form(treedef, tuple((tuple(leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves))


class Piece(NamedTuple):
    """One call: which program, the first batch within the epoch, and how many batches."""

    program: str
    first: int
    batches: int


def pieces(mode: str, batches: Batching, unroll: int, first: int, count: int) -> Iterator[Piece]:
    """Cut `count` batches from `first` on into calls of compiled programs.

    In mode "unroll" the blocks begin at multiples of `unroll` within the epoch, wherever the
    segments are cut: which program takes a step depends on the settings alone, and so does every
    bit, however often a run was interrupted.
    """
    end = first + count
    full = min(end, batches.full)
    if mode == "scan" and first < full:
        yield Piece("loop", first, full - first)
        first = full
    while first < full:
        whole = mode == "unroll" and first % unroll == 0 and first + unroll <= full
        yield Piece("block", first, unroll) if whole else Piece("single", first, 1)
        first += unroll if whole else 1
    if end > batches.full:
        yield Piece("short", batches.full, 1)


@final
class Programs:
    """What a run needs compiled, made once for a model, a plan and the form of the data.

    Each program is lowered and compiled when it is first asked for, or several at once with
    `prepare`; `seconds` says what that has cost so far.
    """

    def __init__(
        self, model: Model, plan: Plan, hyper: Any, train: Form, valid: Form | None
    ) -> None:
        self.batches = batching(train.examples, plan.batch_size, plan.drop_remainder)
        self.total_steps = plan.epochs * self.batches.steps
        self.seconds = 0.0
        self._model, self._plan, self._train, self._valid = model, plan, train, valid
        self._hyper = hyper
        self._compiled: dict[str, Any] = {}
        self._key = jax.eval_shape(lambda: jax.random.key(0))

    @cached_property
    def mode(self) -> str:
        """The execution mode: the plan's, or what the rule chooses."""
        return self._resolve_mode() if self._plan.mode == "auto" else self._plan.mode

    @cached_property
    def state_form(self) -> TrainState:
        """The shapes and dtypes of the state."""
        return jax.eval_shape(self._start, self._hyper, self._key)

    @cached_property
    def _valid_batches(self) -> Batching:
        assert self._valid is not None
        return batching(self._valid.examples, self._plan.eval_batch_size)

    def start(self, hyper: Hyper, key: Key) -> TrainState:
        """Make the state before the first step."""
        return self._get("start")(hyper, key)

    def order(self, key: Key, epoch: int) -> Any:
        """Give the order of the examples in an epoch."""
        return self._get("order")(key, np.int32(epoch))

    def advance(
        self,
        state: TrainState,
        hyper: Hyper,
        data: Data,
        order: Any,
        epoch: int,
        first: int,
        count: int,
    ) -> tuple[TrainState, list[tuple[Info, int]]]:
        """Take `count` steps from batch `first` of an epoch; the given state is used up.

        Returns:
            The new state and, for each call, `info` on the device with the number of its rows.
        """
        begin = epoch * self.batches.steps
        infos = []
        for piece in pieces(self.mode, self.batches, self._plan.unroll, first, count):
            numbers = (np.int32(begin), np.int32(piece.first), np.int32(piece.batches))
            state, info = self._get(piece.program)(state, hyper, data, order, *numbers)
            infos.append((info, piece.batches))
        return state, infos

    def evaluate(self, variables: Variables, hyper: Hyper, data: Data) -> list[Info]:
        """Evaluate the validation data; one `info` for each batch, on the device."""
        batches = self._valid_batches
        size = batches.size
        calls = [("evaluate", i * size) for i in range(batches.full)]
        calls += [("evaluate_short", batches.full * size)] if batches.short else []
        return [self._get(name)(variables, hyper, data, np.int32(at)) for name, at in calls]

    def gradients(self, state: TrainState, hyper: Hyper, batch: Data) -> PyTree:
        """Give the gradients at a state, for finding out where a loss went wrong."""
        function = partial(gradients_at, self._model, self._plan)
        return jax.jit(function)(hyper, state, batch)

    def prepare(self, first: int, resumed: bool) -> None:
        """Compile in parallel what a run will call, beginning at batch `first` of an epoch."""
        names = ["order"] if resumed else ["start", "order"]
        rest = pieces(self.mode, self.batches, self._plan.unroll, 0, self.batches.steps)
        names += [piece.program for piece in rest]
        if first:
            rest = pieces(
                self.mode, self.batches, self._plan.unroll, first, self.batches.steps - first
            )
            names += [piece.program for piece in rest]
        if self._valid is not None:
            batches = self._valid_batches
            names += ["evaluate"] * (batches.full > 0) + ["evaluate_short"] * (batches.short > 0)
        self._compile(name for name in dict.fromkeys(names) if name not in self._compiled)

    def _get(self, name: str) -> Any:
        if name not in self._compiled:
            self._compile([name])
        return self._compiled[name]

    def _compile(self, names: Any) -> None:
        begin = time.perf_counter()
        lowered = {name: self._lower(name) for name in names}
        with ThreadPoolExecutor(max_workers=max(1, len(lowered))) as pool:
            done = pool.map(lambda one: one.compile(), lowered.values())
            self._compiled.update(zip(lowered, done, strict=True))
        self.seconds += time.perf_counter() - begin

    def _lower(self, name: str) -> Any:
        number = jax.ShapeDtypeStruct((), jnp.int32)
        if name == "start":
            return jax.jit(self._start).lower(self._hyper, self._key)
        if name == "order":
            return jax.jit(self._order).lower(self._key, number)
        if name.startswith("evaluate"):
            assert self._valid is not None
            batches = self._valid_batches
            size = batches.size if name == "evaluate" else batches.short
            variables = Variables(self.state_form.params, self.state_form.model_state)
            return jax.jit(partial(self._evaluate, size)).lower(
                variables, self._hyper, self._valid.shapes(), number
            )
        order = jax.ShapeDtypeStruct((self._train.examples,), jnp.int32)
        return jax.jit(self._steps(name), donate_argnums=0).lower(
            self.state_form, self._hyper, self._train.shapes(), order, number, number, number
        )

    def _start(self, hyper: Hyper, key: Key) -> TrainState:
        inputs = jax.tree.map(
            lambda s: jnp.zeros((1, *s.shape[1:]), s.dtype), self._train.shapes().x
        )
        return start_run(self._model, self._plan, hyper, self.total_steps, key, inputs)

    def _order(self, key: Key, epoch: Any) -> Any:
        return epoch_order(key, epoch, self._train.examples, self._plan.shuffle)

    def _evaluate(
        self, size: int, variables: Variables, hyper: Hyper, data: Data, first: Any
    ) -> Info:
        batch = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), data)
        return scores_of(self._model, self._plan, hyper, variables, batch)

    def _steps(self, name: str) -> Callable[..., tuple[TrainState, Info]]:
        batches = self.batches
        size = batches.short if name == "short" else batches.size
        count = self._plan.unroll if name == "block" else 1

        def steps(
            state: TrainState,
            hyper: Hyper,
            data: Data,
            order: Any,
            begin: Any,
            first: Any,
            several: Any,
        ) -> tuple[TrainState, Info]:
            step = step_of(self._model, self._plan, hyper, self.total_steps)
            if name == "loop":
                return segment(step, batches, state, data, order, begin, first, several)
            place = first * batches.size
            return straight(step, size, count, state, data, order, place, begin + first)

        return steps

    def _resolve_mode(self) -> str:
        def one(state: TrainState, hyper: Hyper, batch: Data) -> Any:
            return step_of(self._model, self._plan, hyper, self.total_steps)(state, batch)

        size = min(self.batches.size, self._train.examples)
        batch = jax.tree.map(
            lambda s: jax.ShapeDtypeStruct((size, *s.shape[1:]), s.dtype), self._train.shapes()
        )
        return choose_mode(one, jax.default_backend(), self.state_form, self._hyper, batch)


@lru_cache(maxsize=8)
def _cached(
    model: Any, plan: Plan, names: tuple[str, ...], train: Form, valid: Form | None
) -> Programs:
    number: Any = jax.ShapeDtypeStruct((), jnp.float32, weak_type=True)
    return Programs(model, plan, Hyper(**dict.fromkeys(names, number)), train, valid)


def programs_for(
    model: Model, plan: Plan, hyper: Hyper, train: Form, valid: Form | None
) -> Programs:
    """Give the programs for a run; the same model, plan and forms get the same ones again.

    Values of hyperparameters do not count, only which of them there are.
    """
    names = tuple(field.name for field in fields(hyper) if getattr(hyper, field.name) is not None)
    hashable: Any = model
    return _cached(hashable, plan, names, train, valid)
