"""What is settled before a run: everything given, checked, and the data on the device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.batches import batching, count_examples, prepare
from purefit.core.checks import check_data, check_same_form, normalise
from purefit.core.labels import check_labels, outputs_fit, outputs_for
from purefit.core.losses import find_loss
from purefit.core.metrics import find_metrics
from purefit.core.run import bind
from purefit.core.settings import Hyper, Plan, resolve
from purefit.core.state import trace_hyper
from purefit.core.types import Data, Model, PyTree
from purefit.errors import ModelError, SettingsError
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
    """

    model: Model
    plan: Plan
    hyper: Hyper
    saving: Saving
    seed: int
    train: Data
    valid: Data | None
    settings: Mapping[str, Any]

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
) -> Job:
    """Check everything on the host, before any compilation, and put the data on the device.

    Raises:
        InputError: Something does not fit; the message says what and what to do.
    """
    seed = check_seed(seed)
    hyper, plan, saving = sort_settings(settings)
    find_loss(plan.loss)
    find_metrics(plan.metrics, plan.loss)
    model = as_model(model)
    train = _checked(train, "train")
    valid = None if valid is None else _checked(valid, "valid")
    if valid is not None:
        check_same_form(train, valid)
    check_labels(train, valid, None, plan.loss)
    model = sized(model, outputs_for(train, plan.loss))
    _check_hashable(model, plan)
    hyper = resolve(hyper, plan, model.reads)
    _check_steps(plan, count_examples(train))
    _check_outputs(model, plan, hyper, train, valid)
    described = _described(model, plan, hyper, saving, seed, description or {})
    on_device = None if valid is None else _put(valid)
    return Job(model, plan, hyper, saving, seed, _put(train), on_device, described)


def differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Name the first setting that differs between a saved run and what was given now.

    What is kept of the saved steps may differ, and so may everything in the table `record`.
    """
    free = {"keep_last", "keep_best", "record"}
    for name in [*given, *(name for name in saved if name not in given)]:
        old, new = saved.get(name), given.get(name)
        if name not in free and old != new:
            return f"{name} = {old!r} in the saved run and {new!r} now"
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


def _check_hashable(model: Model, plan: Plan) -> None:
    """Compiled programs are found again by model and plan."""
    for what, value in (("model", model), ("plan", plan)):
        try:
            hash(value)
        except TypeError as error:
            raise ModelError(
                f"Expected a {what} that can be hashed, got {type(value).__name__} ({error}); "
                "make it a frozen dataclass or a function."
            ) from error


def _check_steps(plan: Plan, examples: int) -> None:
    batches = batching(examples, plan.batch_size, plan.drop_remainder)
    if not batches.steps:
        raise SettingsError(
            f"Expected batch_size to be at most the {examples} training examples with "
            f"drop_remainder, got {plan.batch_size}; make it smaller."
        )
    if plan.epochs * batches.steps >= 2**31:
        raise SettingsError(
            f"Expected a run of fewer than 2**31 steps, got {plan.epochs} epochs of "
            f"{batches.steps} steps; choose fewer epochs."
        )


def _check_outputs(model: Model, plan: Plan, hyper: Hyper, train: Data, valid: Data | None) -> None:
    """Look at the form of the outputs, without computing any."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype), train.x)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def outputs(key: Any, inputs: PyTree) -> PyTree:
        apply = bind(model, plan, trace_hyper(hyper))
        variables = model.init(key, prepare(_first(inputs), plan.scale_bytes))
        return apply(variables, inputs, key=key, train=True)[0]

    try:
        shapes = jax.eval_shape(outputs, key, one)
    except ModelError:
        raise
    except Exception as error:
        inputs = jax.tree.map(lambda leaf: tuple(leaf.shape[1:]), train.x)
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(
            f"Expected a model that takes a batch of inputs of shape {inputs}, "
            f"got {type(error).__name__} when it was called ({reason}); "
            "mend the model or its inputs."
        ) from error
    outputs_fit(shapes, train.y, plan.loss)
    if plan.loss == "cross_entropy":
        check_labels(train, valid, jax.tree.leaves(shapes)[0].shape[-1], plan.loss)


def _first(inputs: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:1], inputs)


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
