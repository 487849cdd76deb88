"""The settings of a run, split by what JAX does with them: `Hyper` is traced, `Plan` is static.

This module needs neither JAX nor NumPy, so that the command line reads it at once; importing
`purefit.core.state` makes `Hyper` a pytree.
"""

import math
import numbers
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from purefit.errors import SettingsError

__all__ = [
    "MODES",
    "OPTIMIZERS",
    "SCHEDULES",
    "Hyper",
    "Plan",
    "check_hyper",
    "check_plan",
    "check_widths",
    "is_finite",
    "known_name",
    "resolve",
    "shown",
]

OPTIMIZERS: Mapping[str, Mapping[str, float]] = {
    "adam": {"learning_rate": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8},
    "adamw": {"learning_rate": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 1e-2},
    "sgd": {"learning_rate": 1e-2, "momentum": 0.0},
}
"""The optimizers known by name, each with the hyperparameters it reads and their defaults."""

SCHEDULES: Mapping[str, Mapping[str, float]] = {
    "constant": {},
    "warmup_cosine": {"warmup": 0.05, "final_scale": 0.0},
}
"""The schedules known by name, each with the hyperparameters it reads and their defaults."""

MODES = ("auto", "scan", "unroll", "step")
"""The execution modes that can be asked for; `purefit.core.run` says what each one is."""


@dataclass(frozen=True, kw_only=True)
class Hyper:
    """Hyperparameters that are traced: changing one compiles nothing, and a sweep maps over them.

    None means "not given": what the chosen optimizer and schedule need gets their default (see
    `OPTIMIZERS` and `SCHEDULES`), and what stays None is not part of the program at all.

    Attributes:
        learning_rate: Step size of the optimizer at the peak of its schedule.
        weight_decay: Decoupled weight decay of AdamW; on matrices and kernels only, never on
            leaves with fewer than two axes (biases, scales).
        momentum: Momentum of SGD; 0 is plain SGD.
        b1: Decay of Adam's first moment.
        b2: Decay of Adam's second moment.
        eps: Added to the root of Adam's second moment.
        clip_norm: Largest global norm of the gradient; a longer one is scaled down to it.
        dropout: Probability of dropping a unit, for models that read it (`pf.mlp`, `pf.cnn`).
        warmup: Fraction of all steps in which the rate rises linearly from 0.
        final_scale: Last learning rate of the cosine, as a fraction of the peak.
    """

    learning_rate: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    b1: float | None = None
    b2: float | None = None
    eps: float | None = None
    clip_norm: float | None = None
    dropout: float | None = None
    warmup: float | None = None
    final_scale: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings that are static: changing one makes another program.

    Attributes:
        epochs: Number of passes over the training data.
        batch_size: Examples in a step; the last batch of an epoch holds what is left.
        optimizer: A name in `OPTIMIZERS`, an Optax transformation, or a function
            `(hyper, total_steps) -> transformation`.
        schedule: A name in `SCHEDULES`, for optimizers known by name.
        loss: A name in `purefit.core.losses.LOSSES`, or a function `(outputs, targets)` that
            gives one value per example.
        metrics: Names in `purefit.core.metrics.METRICS` or functions like a loss; None stands
            for what fits the loss.
        drop_remainder: Leave out the short last batch of each epoch.
        shuffle: Draw a new order of the examples for every epoch.
        scale_bytes: Divide uint8 inputs by 255 inside the step.
        eval_batch_size: Examples in one call of an evaluation or prediction.
        mode: How steps are put into compiled programs: "scan", "unroll", "step" or "auto".
        unroll: Steps in one program in mode "unroll".
    """

    epochs: int = 10
    batch_size: int = 128
    optimizer: Any = "adam"
    schedule: str = "constant"
    loss: str | Callable[..., Any] = "cross_entropy"
    metrics: tuple[str | Callable[..., Any], ...] | None = None
    drop_remainder: bool = False
    shuffle: bool = True
    scale_bytes: bool = True
    eval_batch_size: int = 1000
    mode: str = "auto"
    unroll: int = 8


_RANGES: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "learning_rate": ("a positive number", lambda v: v > 0),
    "weight_decay": ("a number of at least 0", lambda v: v >= 0),
    "momentum": ("a number in [0, 1)", lambda v: 0 <= v < 1),
    "b1": ("a number in [0, 1)", lambda v: 0 <= v < 1),
    "b2": ("a number in [0, 1)", lambda v: 0 <= v < 1),
    "eps": ("a positive number", lambda v: v > 0),
    "clip_norm": ("a positive number", lambda v: v > 0),
    "dropout": ("a number in [0, 1)", lambda v: 0 <= v < 1),
    "warmup": ("a fraction in [0, 1)", lambda v: 0 <= v < 1),
    "final_scale": ("a fraction in [0, 1]", lambda v: 0 <= v <= 1),
}


def resolve(hyper: Hyper, plan: Plan, reads: tuple[str, ...] = ()) -> Hyper:
    """Fill in what the plan's optimizer and schedule need, and refuse what nothing would read.

    Works on traced values too, since only the presence of a value is looked at.

    Args:
        hyper: The hyperparameters that were given.
        plan: The plan whose optimizer and schedule read them.
        reads: The hyperparameters that the model reads.

    Raises:
        SettingsError: A hyperparameter was given that has no effect in this combination.
    """
    if isinstance(plan.optimizer, str):
        defaults = {**OPTIMIZERS[plan.optimizer], **SCHEDULES[plan.schedule]}
        readers = f"optimizer {plan.optimizer!r} with schedule {plan.schedule!r}"
    else:
        defaults, readers = {}, "your own optimizer"
    known = {*defaults, *reads, "clip_norm"}
    free = callable(plan.optimizer)
    for field in fields(hyper):
        given = getattr(hyper, field.name) is not None
        if given and field.name not in known and not (free and field.name != "dropout"):
            raise SettingsError(
                f"Expected only settings that have an effect, got {field.name}, which "
                f"{'this model' if field.name == 'dropout' else readers} does not read; "
                f"leave it out or use one of: {', '.join(sorted(known))}."
            )
    missing = {name: v for name, v in defaults.items() if getattr(hyper, name) is None}
    return replace(hyper, **missing)


def check_hyper(hyper: Hyper) -> None:
    """Refuse hyperparameters that are no numbers or out of their range (not for traced values).

    Raises:
        SettingsError: Names the setting, its rule and its value.
    """
    for field in fields(hyper):
        value = getattr(hyper, field.name)
        if value is None:
            continue
        rule, fits = _RANGES[field.name]
        if not (is_finite(value) and fits(value)):
            raise SettingsError(
                f"Expected {field.name} to be {rule}, got {shown(value)}; change it."
            )
        kept = _float32(value)
        if not (math.isfinite(kept) and fits(kept)):
            raise SettingsError(
                f"Expected {field.name} to be {rule} in float32 too, got {value!r}, which becomes "
                f"{kept}; change it."
            )


def check_plan(plan: Plan) -> None:
    """Refuse a plan whose values are out of range or unknown.

    Raises:
        SettingsError: Names the setting, its rule and its value.
    """
    for name in ("epochs", "batch_size", "eval_batch_size", "unroll"):
        value = getattr(plan, name)
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or value < 1:
            raise SettingsError(
                f"Expected {name} to be a whole number of at least 1, got {shown(value)}; "
                "change it."
            )
        if value >= 2**31 and name != "epochs":
            raise SettingsError(
                f"Expected {name} to be a whole number below 2**31, got {value}; make it smaller."
            )
    for name in ("drop_remainder", "shuffle", "scale_bytes"):
        if not isinstance(getattr(plan, name), bool):
            raise SettingsError(
                f"Expected {name} to be true or false, got {shown(getattr(plan, name))}; change it."
            )
    known_name("mode", plan.mode, MODES)
    if plan.mode in ("scan", "step") and plan.unroll != Plan.unroll:
        raise SettingsError(
            f"Expected unroll only in modes unroll and auto, got it with {plan.mode!r}; "
            "leave it out."
        )
    known_name("schedule", plan.schedule, SCHEDULES)
    _check_functions(plan)


def _check_functions(plan: Plan) -> None:
    """Refuse losses, metrics and optimizers that are neither names nor functions."""
    if not isinstance(plan.loss, str) and not callable(plan.loss):
        raise SettingsError(
            f"Expected loss to be a name or a function, got {shown(plan.loss)}; choose one."
        )
    metrics: Any = plan.metrics
    if metrics is not None and not isinstance(metrics, tuple):
        raise SettingsError(
            f"Expected metrics to be a tuple of names or functions, got {shown(metrics)}; "
            "put it into one."
        )
    if isinstance(plan.optimizer, str):
        known_name("optimizer", plan.optimizer, OPTIMIZERS)
    elif not callable(plan.optimizer) and not _is_transformation(plan.optimizer):
        raise SettingsError(
            "Expected optimizer to be a name, an Optax transformation or a function of "
            f"(hyper, total_steps), got {type(plan.optimizer).__name__}; "
            f"use one of: {', '.join(OPTIMIZERS)}."
        )
    elif plan.schedule != "constant":
        raise SettingsError(
            f"Expected schedule 'constant' with your own optimizer, got {plan.schedule!r}; "
            "put the schedule into the Optax transformation."
        )


def check_widths(name: str, widths: Sequence[Any]) -> None:
    """Refuse widths of layers that are no whole numbers, or out of all bounds.

    Raises:
        SettingsError: Names the setting and its value.
    """
    for width in widths:
        whole = isinstance(width, numbers.Integral) and not isinstance(width, bool)
        if not whole or not 0 < width < 2**31:
            raise SettingsError(
                f"Expected {name} to be whole numbers of at least 1 and below 2**31, got "
                f"{shown(width)}; change it."
            )


def known_name(setting: str, value: object, names: Any) -> None:
    """Refuse a name that is not among the known ones, and list those."""
    if not isinstance(value, str) or value not in names:
        raise SettingsError(
            f"Expected {setting} to be one of {', '.join(names)}, got {shown(value)}; "
            "choose one of them."
        )


def is_finite(value: Any) -> bool:
    """Tell whether something is a real number, not NaN and not infinite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # A whole number beyond all floats is finite, but of no use.
        return False


def shown(value: object) -> str:
    """Write a value for a message: on one line, and not at length."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _float32(value: Any) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.inf


def _is_transformation(value: object) -> bool:
    return callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))
