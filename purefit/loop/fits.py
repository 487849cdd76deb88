"""Whether model, loss, metrics, optimizer and data fit together, from shapes alone."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from purefit.core.batches import prepare
from purefit.core.labels import outputs_fit
from purefit.core.losses import cross_entropy, find_loss
from purefit.core.metrics import find_metrics
from purefit.core.optimizers import make_optimizer
from purefit.core.run import bind
from purefit.core.settings import Hyper, Plan
from purefit.core.state import trace_hyper
from purefit.core.step import measure
from purefit.core.types import Data, Model, PyTree, Variables
from purefit.errors import InputError, ModelError, SettingsError
from purefit.io.datasets import reason

__all__ = ["check_applied", "check_step", "is_cross_entropy"]

_BATCH = 2
"""Examples in the batch that is looked at; nothing is computed with it."""

_MOST_BYTES = 2**50
"""Where XLA is not asked any more: it ends the process if a size does not fit into its integers."""


def check_step(model: Model, plan: Plan, hyper: Hyper, train: Data, total_steps: int) -> int | None:
    """Refuse parts that do not make a step together.

    Args:
        model: A model whose width of output is known.
        plan: The static settings.
        hyper: The resolved hyperparameters.
        train: Normalised and checked training examples.
        total_steps: Steps of the whole run.

    Returns:
        The number of classes where the loss is cross-entropy, else None.

    Raises:
        ModelError: The model fails, or gives parameters or outputs of a wrong form.
        SettingsError: The loss, a metric or the optimizer fails.
    """
    batch: Data = jax.tree.map(_few, train)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def begin(key: Any, inputs: PyTree) -> Variables:
        one = jax.tree.map(lambda leaf: leaf[:1], inputs)
        return model.init(key, prepare(one, plan.scale_bytes))

    try:
        variables = jax.eval_shape(begin, key, batch.x)
    except Exception as error:
        _model_fails(error, batch.x)
    _check_parameters(variables.params)
    outputs, state = _applied(model, plan, hyper, variables, batch.x)
    if _form(state) != _form(variables.state):
        raise ModelError(
            "Expected the model to give its state back in the form in which it began, got another "
            "structure, shape or dtype; change what it returns."
        )
    outputs_fit(outputs, train.y, plan.loss)
    if isinstance(plan.loss, str) or is_cross_entropy(plan):
        _check_rows(outputs)
    _check_measures(plan, outputs, batch)
    if not isinstance(plan.optimizer, str):
        _check_optimizer(plan, hyper, variables.params, total_steps)
    return jax.tree.leaves(outputs)[0].shape[-1] if is_cross_entropy(plan) else None


def check_applied(
    model: Model, plan: Plan, hyper: Hyper, variables: Variables, inputs: PyTree
) -> PyTree:
    """Refuse inputs that a trained model does not take; give the form of its outputs.

    Raises:
        ModelError: It fails with them.
    """
    return _applied(model, plan, hyper, variables, jax.tree.map(_few, inputs))[0]


def is_cross_entropy(plan: Plan) -> bool:
    """Whether the targets are class labels."""
    return plan.loss == "cross_entropy" or plan.loss is cross_entropy


def _few(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((_BATCH, *leaf.shape[1:]), leaf.dtype)


def _form(tree: PyTree) -> tuple[Any, list[Any]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _applied(
    model: Model, plan: Plan, hyper: Hyper, variables: Variables, inputs: PyTree
) -> tuple[PyTree, PyTree]:
    key = jax.eval_shape(lambda: jax.random.key(0))

    def applied(key: Any, variables: Variables, inputs: PyTree) -> tuple[PyTree, PyTree]:
        apply = bind(model, plan, trace_hyper(hyper))
        return apply(variables, inputs, key=key, train=True)

    try:
        return jax.eval_shape(applied, key, variables, inputs)
    except Exception as error:
        _model_fails(error, inputs)


def _model_fails(error: Exception, inputs: PyTree) -> NoReturn:
    if isinstance(error, InputError):
        raise error
    shapes = jax.tree.map(lambda leaf: tuple(leaf.shape[1:]), inputs)
    told = re.sub(r"^function \S+ at \S+ traced for jit", "init or apply", reason(error))
    raise ModelError(
        f"Expected a model that takes a batch of inputs of shape {shapes}, got "
        f"{type(error).__name__} when it was called ({told}); mend the model or its inputs."
    ) from error


def _check_parameters(params: PyTree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ModelError(
                f"Expected parameters of floats, got {leaf.dtype} in "
                f"params{jax.tree_util.keystr(path)}; keep what is not trained out of them."
            )
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    if size >= _MOST_BYTES:
        raise ModelError(
            f"Expected parameters of fewer than {_MOST_BYTES} bytes, got {size}; make the model "
            "smaller."
        )


def _check_rows(outputs: PyTree) -> None:
    for leaf in jax.tree.leaves(outputs):
        if leaf.shape[:1] != (_BATCH,) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ModelError(
                f"Expected the model to give floats, one row for each of {_BATCH} examples, got "
                f"{leaf.dtype}{list(leaf.shape)}; change what it returns."
            )


def _check_measures(plan: Plan, outputs: PyTree, batch: Data) -> None:
    given: dict[str, Callable[..., Any]] = {"loss": find_loss(plan.loss)}
    given |= find_metrics(plan.metrics, plan.loss)
    for name, function in given.items():
        try:
            jax.eval_shape(partial(measure, function, {}), outputs, batch)
        except InputError:
            raise
        except Exception as error:
            raise SettingsError(
                f"Expected {'the loss' if name == 'loss' else f'metric {name}'} to take the "
                f"model's outputs and the targets, got {type(error).__name__} when it was called "
                f"({reason(error)}); mend it, or choose another one."
            ) from error


def _check_optimizer(plan: Plan, hyper: Hyper, params: PyTree, total_steps: int) -> None:
    """Make and take a step of an optimizer of one's own: the state must keep its form."""

    def twice(params: PyTree) -> Any:
        optimizer = make_optimizer(plan, trace_hyper(hyper), total_steps)
        before = optimizer.init(params)
        updates, after = optimizer.update(params, before, params)
        return (params, before), (updates, after)

    try:
        before, after = jax.eval_shape(twice, params)
    except Exception as error:
        raise SettingsError(
            "Expected optimizer to be an Optax transformation or a function of (hyper, "
            f"total_steps) that gives one, got {type(error).__name__} when it was used "
            f"({reason(error)}); mend it, or choose one by name."
        ) from error
    if _form(before) != _form(after):
        raise SettingsError(
            "Expected the optimizer to keep the form of the parameters and of its state, got "
            "another one after a step; mend it, or choose one by name."
        )
