"""What is settled before a run: everything given, checked, and the data on the device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.batches import batching, count_examples
from purefit.core.checks import check_data, check_same_form, normalise
from purefit.core.labels import check_labels, check_targets, outputs_for
from purefit.core.losses import find_loss
from purefit.core.metrics import find_metrics
from purefit.core.settings import Hyper, Plan, resolve
from purefit.core.state import trace_hyper
from purefit.core.types import Data, Model
from purefit.errors import ModelError, SettingsError
from purefit.io.datasets import reason
from purefit.loop.fits import check_step
from purefit.loop.settings import Saving, check_seed, sort_settings
from purefit.models.doors import as_model, sized

__all__ = ["Job", "differences", "make_job"]


@dataclass(frozen=True)
class Job:
    """A run that can begin.

    Attributes:
        model: The model, its width of output known.
        plan: The static settings.
        hyper: The hyperparameters, their defaults filled in, as plain numbers.
        saving: When to save.
        seed: The seed.
        train: Training examples on the device.
        valid: Validation examples on the device, or None.
        settings: All of this as plain values, for `run.toml`.
        notes: What else `run.toml` keeps in its table `record`, such as the names of the classes.
    """

    model: Model
    plan: Plan
    hyper: Hyper
    saving: Saving
    seed: int
    train: Data
    valid: Data | None
    settings: Mapping[str, Any]
    notes: Mapping[str, Any]

    @property
    def traced(self) -> Hyper:
        """The hyperparameters as arguments of compiled programs."""
        return trace_hyper(self.hyper)


def make_job(
    model: Any,
    train: Any,
    valid: Any,
    seed: int,
    settings: Mapping[str, Any],
    description: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Job:
    """Check everything on the host, before any compilation, and put the data on the device.

    Raises:
        InputError: Something does not fit; the message says what and what to do.
    """
    seed = check_seed(seed)
    hyper, plan, saving = sort_settings(settings)
    find_loss(plan.loss)
    _check_hashable_plan(plan)
    find_metrics(plan.metrics, plan.loss)
    model = as_model(model)
    train = _checked(train, "train")
    valid = None if valid is None else _checked(valid, "valid")
    if valid is not None:
        check_same_form(train, valid)
    check_targets(train, "train", None, plan.loss)
    if getattr(model, "outputs", 0) is None:
        model = sized(model, outputs_for(train, plan.loss))
    _check_hashable(model)
    hyper = resolve(hyper, plan, model.reads)
    steps = _check_steps(plan, count_examples(train))
    check_labels(train, valid, check_step(model, plan, hyper, train, steps), plan.loss)
    described = _described(model, plan, hyper, saving, seed, description or {})
    on_device = None if valid is None else _put(valid)
    return Job(model, plan, hyper, saving, seed, _put(train), on_device, described, notes or {})


def differences(
    saved: Mapping[str, Any],
    given: Mapping[str, Any],
    places: tuple[str, str] = ("in the saved run", "now"),
) -> str | None:
    """Name the first setting that differs between a saved run and what was given now.

    What is kept of the saved steps may differ, and so may everything in the table `record`.

    Args:
        saved: The settings of the saved run.
        given: Those of now.
        places: What to call where the two were found.
    """
    free = {"keep_last", "keep_best", "record"}
    for name in [*given, *(name for name in saved if name not in given)]:
        old, new = saved.get(name), given.get(name)
        if name not in free and old != new:
            return f"{name} = {old!r} {places[0]} and {new!r} {places[1]}"
    return None


def _checked(data: Any, what: str) -> Data:
    data = normalise(data, what)
    check_data(data, what)
    return data


def _put(data: Data) -> Data:
    """Copy to the device; a writable NumPy array could change under a buffer that it shares."""

    def put(leaf: Any) -> jax.Array:
        shared = isinstance(leaf, np.ndarray) and not leaf.flags.writeable
        return jnp.asarray(leaf) if shared else jnp.array(leaf, copy=True)

    return jax.tree.map(put, data)


def _check_hashable_plan(plan: Plan) -> None:
    for field in fields(plan):
        try:
            hash(getattr(plan, field.name))
        except TypeError as error:
            raise SettingsError(
                f"Expected {field.name} to be something that can be hashed, got "
                f"{type(getattr(plan, field.name)).__name__} ({reason(error)}); give a name, a "
                "function or a tuple of them."
            ) from error


def _check_hashable(model: Model) -> None:
    """Compiled programs are found again by model and plan."""
    try:
        hash(model)
    except TypeError as error:
        raise ModelError(
            f"Expected a model that can be hashed, got {type(model).__name__} ({reason(error)}); "
            "make it a frozen dataclass or a function."
        ) from error


def _check_steps(plan: Plan, examples: int) -> int:
    batches = batching(examples, plan.batch_size, plan.drop_remainder)
    if not batches.steps:
        raise SettingsError(
            f"Expected batch_size to be at most the {examples} training examples with "
            f"drop_remainder, got {plan.batch_size}; make it smaller."
        )
    total = plan.epochs * batches.steps
    if total >= 2**31:
        raise SettingsError(
            f"Expected a run of fewer than 2**31 steps, got {plan.epochs} epochs of "
            f"{batches.steps} steps; choose fewer epochs."
        )
    return total


def _described(
    model: Model,
    plan: Plan,
    hyper: Hyper,
    saving: Saving,
    seed: int,
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """Give the settings as plain values, in the names that the command line knows them by."""
    flat = {"data": "arrays", "model": type(model).__name__, **description, "seed": seed}
    for record in (plan, hyper, saving):
        for field in fields(record):
            value = getattr(record, field.name)
            if value is not None:
                flat[field.name] = _plain(value)
    return flat


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list) and not hasattr(value, "update"):
        return [_plain(one) for one in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float | np.number):
        return value.item() if isinstance(value, np.number) else value
    return f"custom:{_name(value)}"


def _name(value: Callable[..., Any]) -> str:
    return getattr(value, "__qualname__", type(value).__name__)
