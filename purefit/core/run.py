"""A run as a pure function, and the segments that it is cut into.

Steps get into compiled programs in one of three execution modes:

- `scan`: a loop inside one program, over as many steps as the host asks for (a traced number, so
  that one program serves every segment). The rule's choice but for the next case.
- `unroll`: a straight line of several steps (8) in one program, single steps for what is left over.
- `step`: one step in one program.

The rule (`choose_mode`): `unroll` for programs with a convolution on the CPU, else `scan`. XLA runs
a convolution inside a loop on the CPU many times slower than outside of one; `bench/modes.py` has
the figures. A mode may change bits, so it is recorded with the run; where segments are cut never
does.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int

from purefit.core.batches import Batching, batching, count_examples, epoch_order, prepare, take
from purefit.core.evaluate import evaluate, evaluate_batch
from purefit.core.losses import find_loss
from purefit.core.metrics import find_metrics
from purefit.core.optimizers import make_optimizer
from purefit.core.settings import Hyper, Plan, resolve
from purefit.core.state import TrainState, start, trace_hyper
from purefit.core.step import Info, Step, make_step
from purefit.core.types import Apply, Data, Key, Model, PyTree, Variables

__all__ = [
    "History",
    "RunFunction",
    "advance",
    "bind",
    "choose_mode",
    "epoch",
    "gradients_at",
    "make_run",
    "scores_of",
    "segment",
    "start_run",
    "step_of",
    "straight",
]

History = dict[str, Any]
"""Columns with one row an epoch: `train_loss`, `train_accuracy`, `test_loss`, ..."""

RunFunction = Callable[..., tuple[TrainState, History]]


def bind(model: Model, plan: Plan, hyper: Hyper) -> Apply:
    """Bind to a model's `apply` the hyperparameters it reads and the preparation of its inputs."""
    traced = {name: getattr(hyper, name) for name in model.reads}

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key, train: bool
    ) -> tuple[PyTree, PyTree]:
        prepared = prepare(inputs, plan.scale_bytes)
        return model.apply(variables, prepared, key=key, train=train, **traced)

    return apply


def step_of(model: Model, plan: Plan, hyper: Hyper, total_steps: int) -> Step:
    """Make the step of a plan from resolved hyperparameters."""
    loss = find_loss(plan.loss)
    optimizer = make_optimizer(plan, hyper, total_steps)
    return make_step(
        bind(model, plan, hyper), loss, find_metrics(plan.metrics, plan.loss), optimizer
    )


def scores_of(model: Model, plan: Plan, hyper: Hyper, variables: Variables, batch: Data) -> Info:
    """Sum the plan's loss and metrics over a batch, in evaluation mode."""
    metrics = find_metrics(plan.metrics, plan.loss)
    apply = bind(model, plan, hyper)
    return evaluate_batch(apply, find_loss(plan.loss), metrics, variables, batch)


def start_run(
    model: Model, plan: Plan, hyper: Hyper, total_steps: int, key: Key, inputs: PyTree
) -> TrainState:
    """Make the state before the first step of a plan; of `inputs` only the shapes count."""
    optimizer = make_optimizer(plan, hyper, total_steps)
    one = jax.tree.map(lambda leaf: leaf[:1], inputs)
    return start(model, optimizer, key, prepare(one, plan.scale_bytes))


def advance(
    step: Step,
    size: int,
    state: TrainState,
    data: Data,
    order: Int[Array, " examples"],
    first: Int[Array, ""] | int,
    number: Int[Array, ""] | int,
) -> tuple[TrainState, Info]:
    """Take step `number` of a run, or stand still for good once a loss was not finite.

    Standing still are the step, the parameters and the model's state. The optimizer's state is
    not: it is of no use any more, and selecting it costs copies in every step (5 % of an epoch of
    the MNIST network).

    Args:
        step: The step function.
        size: Examples in this batch.
        state: The state; after a loss that was not finite its `step` lags behind `number`.
        data: All the training examples.
        order: The epoch's order of them.
        first: Where in the order this batch begins.
        number: The number of this step in the run, counted from 0.
    """
    after, info = step(state, take(data, order, first, size))
    live = (state.step == number) & jnp.isfinite(info["loss"].total)
    held = {
        name: jax.tree.map(partial(jnp.where, live), getattr(after, name), getattr(state, name))
        for name in ("step", "params", "model_state")
    }
    return replace(after, **held), info


def segment(
    step: Step,
    batches: Batching,
    state: TrainState,
    data: Data,
    order: Int[Array, " examples"],
    epoch_start: Int[Array, ""],
    first: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[TrainState, Info]:
    """Take `count` steps over full batches of one epoch, in a loop inside the program.

    Args:
        step: The step function.
        batches: How the epoch falls into batches.
        state: The state before.
        data: All the training examples.
        order: The epoch's order of them.
        epoch_start: Number of the epoch's first step in the run.
        first: The first batch of this segment, counted from 0 within the epoch.
        count: How many batches; traced.

    Returns:
        The state after, and `info` with one row for each full batch of an epoch, of which the
        first `count` are filled in.
    """

    def one(i: Int[Array, ""], state: TrainState) -> tuple[TrainState, Info]:
        place = first + i
        return advance(
            step, batches.size, state, data, order, place * batches.size, epoch_start + place
        )

    def body(i: Int[Array, ""], carry: tuple[TrainState, Info]) -> tuple[TrainState, Info]:
        state, rows = carry
        state, info = one(i, state)
        return state, jax.tree.map(lambda row, value: row.at[i].set(value), rows, info)

    _, shapes = jax.eval_shape(one, jnp.int32(0), state)
    rows = jax.tree.map(lambda leaf: jnp.zeros((batches.full, *leaf.shape), leaf.dtype), shapes)
    return lax.fori_loop(0, count, body, (state, rows))


def straight(
    step: Step,
    size: int,
    count: int,
    state: TrainState,
    data: Data,
    order: Int[Array, " examples"],
    first: Int[Array, ""] | int,
    number: Int[Array, ""] | int,
) -> tuple[TrainState, Info]:
    """Take `count` steps one after another with no loop in the program.

    Args:
        step: The step function.
        size: Examples in each batch.
        count: How many batches; static.
        state: The state before.
        data: All the training examples.
        order: The epoch's order of them.
        first: Where in the order the first of these batches begins.
        number: The number of the first of these steps in the run.

    Returns:
        The state after, and `info` with `count` rows.
    """
    infos = []
    for i in range(count):
        state, info = advance(step, size, state, data, order, first + i * size, number + i)
        infos.append(info)
    return state, jax.tree.map(lambda *rows: jnp.stack(rows), *infos)


def epoch(
    step: Step,
    batches: Batching,
    shuffle: bool,
    state: TrainState,
    data: Data,
    index: Int[Array, ""],
) -> tuple[TrainState, Info]:
    """Take all the steps of epoch `index`; `info` has a row for each."""
    order = epoch_order(state.key, index, count_examples(data), shuffle)
    begin = index * batches.steps
    parts = []
    if batches.full:

        def body(state: TrainState, i: Int[Array, ""]) -> tuple[TrainState, Info]:
            return advance(step, batches.size, state, data, order, i * batches.size, begin + i)

        state, rows = lax.scan(body, state, jnp.arange(batches.full, dtype=jnp.int32))
        parts.append(rows)
    if batches.short:
        at = batches.full * batches.size
        last = begin + batches.full
        state, rows = straight(step, batches.short, 1, state, data, order, at, last)
        parts.append(rows)
    return state, jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)


def make_run(model: Model, plan: Plan) -> RunFunction:
    """Make a whole training run as one pure function.

    The result can be given to `jax.jit`, mapped over keys or hyperparameters with `jax.vmap`, or
    called as it is. Shapes are looked at when it is traced; values are not checked (`pf.fit` does).

    Args:
        model: A model with a known width of output, such as `pf.mlp(256, 128, outputs=10)`.
        plan: The static settings. `mode` is not looked at: a function has one mode, scan.

    Returns:
        `run(key, hyper, train, valid=None) -> (state, history)`. `history` has one row an epoch;
        its `step_loss` has one column a step besides.

    Raises:
        SettingsError: When called: a hyperparameter has no effect.
    """

    def run(
        key: Key, hyper: Hyper, train: Data, valid: Data | None = None
    ) -> tuple[TrainState, History]:
        train, valid = jax.tree.map(jnp.asarray, (Data(*train), valid))
        batches = batching(count_examples(train), plan.batch_size, plan.drop_remainder)
        total = plan.epochs * batches.steps
        hyper = trace_hyper(resolve(hyper, plan, model.reads))
        step = step_of(model, plan, hyper, total)
        state = start_run(model, plan, hyper, total, key, train.x)

        def body(state: TrainState, index: Int[Array, ""]) -> tuple[TrainState, History]:
            state, info = epoch(step, batches, plan.shuffle, state, train, index)
            row = {f"train_{name}": rows.merged().value for name, rows in info.items()}
            row["step_loss"] = info["loss"].value
            if valid is not None:
                variables = Variables(state.params, state.model_state)
                scores = evaluate(
                    bind(model, plan, hyper),
                    find_loss(plan.loss),
                    find_metrics(plan.metrics, plan.loss),
                    plan.eval_batch_size,
                    variables,
                    Data(*valid),
                )
                row |= {f"test_{name}": score.merged().value for name, score in scores.items()}
            return state, row

        return lax.scan(body, state, jnp.arange(plan.epochs, dtype=jnp.int32))

    return run


def gradients_at(model: Model, plan: Plan, hyper: Hyper, state: TrainState, batch: Data) -> PyTree:
    """Give the gradients that the next step of a state would have on a batch."""
    kept = optax.GradientTransformation(
        lambda params: (), lambda grads, old, params: (grads, grads)
    )
    step = make_step(bind(model, plan, hyper), find_loss(plan.loss), {}, kept)
    after, _ = step(state, batch)
    return after.opt_state


def choose_mode(step: Callable[..., Any], backend: str, *arguments: Any) -> str:
    """Choose the execution mode for a step, by looking for convolutions in its program.

    Args:
        step: A function that takes one step.
        backend: Name of the backend, such as "cpu" or "gpu".
        *arguments: Arguments (or their shapes) to trace it with.
    """
    if backend == "cpu" and _has_convolution(jax.make_jaxpr(step)(*arguments).jaxpr):
        return "unroll"
    return "scan"


def _has_convolution(jaxpr: Any) -> bool:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            return True
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")
        ):
            if hasattr(inner, "eqns") and _has_convolution(inner):
                return True
    return False
