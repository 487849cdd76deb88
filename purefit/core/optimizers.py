"""From names and traced hyperparameters to an Optax chain, made anew inside every run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from purefit.core.settings import Hyper, Plan
from purefit.core.types import PyTree

__all__ = ["make_optimizer", "make_schedule", "scale_by_adam"]

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


def make_optimizer(plan: Plan, hyper: Hyper, total_steps: int) -> optax.GradientTransformation:
    """Build the optimizer of a run; clipping, if any, comes first.

    Args:
        plan: Says which optimizer and schedule.
        hyper: Resolved hyperparameters, numbers or traced.
        total_steps: Steps of the whole run, for the schedule.
    """
    chosen = plan.optimizer
    if isinstance(chosen, str):
        schedule = make_schedule(plan.schedule, hyper, total_steps)
        parts = [_NAMED[chosen](hyper), optax.scale_by_learning_rate(schedule)]
    elif hasattr(chosen, "update"):
        parts = [chosen]
    else:
        parts = [chosen(hyper, total_steps)]
    if hyper.clip_norm is not None:
        parts.insert(0, optax.clip_by_global_norm(hyper.clip_norm))
    return optax.chain(*parts)


def make_schedule(name: str, hyper: Hyper, total_steps: int) -> Schedule:
    """Build the learning rate as a function of the step; its settings may be traced.

    `warmup_cosine` rises linearly from 0 to the peak over `warmup * total_steps` steps, then
    follows half a cosine down to `final_scale` times the peak, reached at the end of the run.
    The values are those of `optax.warmup_cosine_decay_schedule`, which needs static settings.
    """
    peak = jnp.asarray(hyper.learning_rate, jnp.float32)
    if name == "constant":
        return lambda step: peak
    warmup = jnp.asarray(hyper.warmup, jnp.float32) * total_steps
    final = jnp.asarray(hyper.final_scale, jnp.float32)

    def warmup_cosine(step: Int[Array, ""]) -> Float[Array, ""]:
        now = step.astype(jnp.float32)
        rise = now / jnp.maximum(warmup, 1.0)
        progress = jnp.clip((now - warmup) / jnp.maximum(total_steps - warmup, 1.0), 0.0, 1.0)
        fall = final + (1.0 - final) * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        return peak * jnp.where(now < warmup, rise, fall)

    return warmup_cosine


def scale_by_adam(b1: Any, b2: Any, eps: Any) -> optax.GradientTransformation:
    """Rescale gradients as Adam does (Kingma and Ba, 2015, arXiv 1412.6980, algorithm 1).

    The state is Optax's. The one difference is how `1 - b**t` is computed: in float32 the power
    and the subtraction lose up to four digits for `b2` in the first steps, which `expm1` keeps.
    """
    b1, b2 = (b if isinstance(b, jax.Array) else jnp.asarray(float(b)) for b in (b1, b2))

    def init(params: PyTree) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(
        grads: PyTree, state: optax.ScaleByAdamState, params: PyTree = None
    ) -> tuple[PyTree, optax.ScaleByAdamState]:
        count = state.count + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        first, second = _one_minus_power(b1, count), _one_minus_power(b2, count)
        updates = jax.tree.map(lambda m, v: (m / first) / (jnp.sqrt(v / second) + eps), mu, nu)
        return updates, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def _one_minus_power(base: Any, count: Int[Array, ""]) -> Float[Array, ""]:
    """Give 1 - base**count with full relative precision, however near to 1 the base is."""
    below = jnp.asarray(base, jnp.float32) - 1.0
    return -jnp.expm1(count.astype(jnp.float32) * jnp.log1p(below))


def _adam(hyper: Hyper) -> optax.GradientTransformation:
    return scale_by_adam(_is(hyper.b1), _is(hyper.b2), _is(hyper.eps))


def _adamw(hyper: Hyper) -> optax.GradientTransformation:
    decay = optax.add_decayed_weights(_is(hyper.weight_decay), mask=_matrices)
    return optax.chain(_adam(hyper), decay)


def _sgd(hyper: Hyper) -> optax.GradientTransformation:
    return optax.trace(decay=_is(hyper.momentum))


_NAMED = {"adam": _adam, "adamw": _adamw, "sgd": _sgd}


def _matrices(params: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _is(value: Any) -> Any:
    """Narrow a resolved hyperparameter: the ones that an optimizer reads are never None."""
    assert value is not None
    return value
