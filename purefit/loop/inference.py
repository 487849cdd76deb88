"""What is done with a run afterwards: evaluate it, predict with it, load it from its folder."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.batches import batching, count_examples
from purefit.core.checks import check_data, check_inputs, normalise
from purefit.core.evaluate import predict_batch, predict_examples
from purefit.core.labels import check_targets, outputs_fit
from purefit.core.run import bind, scores_of
from purefit.core.settings import Hyper, Plan, check_plan, known_name, resolve
from purefit.core.state import trace_hyper
from purefit.core.types import Data, Model, PyTree, Variables
from purefit.errors import DataError, InputError, ModelError, SettingsError
from purefit.io.checkpoints import restore
from purefit.io.datasets import reason
from purefit.loop.fits import check_applied, is_cross_entropy
from purefit.loop.programs import Programs, form_of, programs_for
from purefit.loop.record import Run, Tally, Timings, as_columns
from purefit.loop.room import room
from purefit.loop.saved import read_run
from purefit.loop.settings import Settings, as_path, sort_settings
from purefit.models.doors import as_model, sized

__all__ = ["evaluate", "load", "predict"]


@room()
def evaluate(run: Run, data: Any, *, batch_size: int | None = None) -> dict[str, float]:
    """Give the loss and every metric of a run on some data, each example counted once.

    Args:
        run: A finished run.
        data: Examples in the form of the training data.
        batch_size: Examples in one call; that of the run's plan if None. It changes the memory
            needed, and the result by rounding only.

    Returns:
        `loss` and each metric by name.

    Raises:
        DataError: The data do not fit.
    """
    data = normalise(data, "data")
    check_data(data, "data")
    _check_targets(run, data)
    tally = Tally()
    for batch in _batches(data, _size(run, batch_size)):
        tally.add(jax.device_get(_scores(run.model, run.plan, _hyper(run), run.variables, batch)))
    return tally.means("")


@room()
def predict(run: Run, inputs: Any, *, by: str = "batch", batch_size: int | None = None) -> PyTree:
    """Give the model's outputs for some inputs, in evaluation mode.

    Args:
        run: A finished run.
        inputs: Inputs in the form of the training data's `x`.
        by: "batch" uses the model's own batching; "example" maps a function of one example over
            the batch with `jax.vmap`. The results are the same but for rounding.
        batch_size: Examples in one call; that of the run's plan if None.

    Returns:
        The outputs as NumPy arrays, for a classifier the logits `[examples, classes]`:
        `argmax(axis=-1)` gives the classes.

    Raises:
        DataError: The inputs do not fit.
    """
    known_name("by", by, ("batch", "example"))
    inputs = check_inputs(inputs)
    _applied(run, inputs, "inputs")
    parts = [
        jax.device_get(_outputs(by, run.model, run.plan, run.variables, _hyper(run), batch))
        for batch in _batches(inputs, _size(run, batch_size))
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def load(
    folder: str | Path,
    model: Any,
    like: Any,
    *,
    which: str = "last",
    **settings: Unpack[Settings],
) -> Run:
    """Load a saved run for evaluation and prediction; no code is named by the folder.

    Args:
        folder: The run folder.
        model: The same model that `fit` was given.
        like: Some inputs in the form of the training data's `x`, or shapes and dtypes of them.
        which: "last" for the newest verified step, "best" for the best epoch's.
        **settings: Settings that a folder cannot hold: your own `optimizer`, `loss` or `metrics`.

    Raises:
        RunFolderError: There is no run, or nothing saved.
        CheckpointError: What is saved is damaged or of another model.
    """
    known_name("which", which, ("last", "best"))
    folder = as_path(folder, "folder")
    like = _forms(like)
    saved, path, manifest = read_run(folder, which)
    names = {**Hyper.__dataclass_fields__, **Plan.__dataclass_fields__}
    flat = {name: value for name, value in saved.items() if name in names}
    hyper, plan, _ = sort_settings(_known({**flat, **settings}))
    record = saved["record"]
    network = as_model(model)
    if "outputs" in record:
        network = sized(network, record["outputs"])
    form = form_of(Data(jax.tree.map(partial(_as_many, record["examples"]), like), ()))
    hyper = resolve(hyper, plan, network.reads)
    state = restore(path, manifest, _state_form(programs_for(network, plan, hyper, form, None)))
    return Run(
        model=network,
        plan=plan,
        hyper=hyper,
        seed=saved["seed"],
        state=state,
        history=as_columns(manifest.record["rows"]),
        timings=Timings(),
        mode=manifest.record["mode"],
        folder=folder,
    )


def _as_many(examples: int, leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((examples, *leaf.shape[1:]), leaf.dtype)


def _state_form(programs: Programs) -> PyTree:
    try:
        return programs.state_form
    except InputError:
        raise
    except Exception as error:
        raise ModelError(
            f"Expected model and optimizer to begin with inputs like these, got "
            f"{type(error).__name__} ({reason(error)}); give those that the run was saved with."
        ) from error


def _forms(like: Any) -> PyTree:
    leaves = jax.tree.leaves(like, is_leaf=lambda leaf: leaf is None)
    if not leaves or not all(getattr(leaf, "shape", ()) for leaf in leaves):
        raise DataError(
            "Expected like to be inputs with the examples along the first axis, got "
            f"{type(like).__name__}; give some of the training data's x."
        )
    return like


def _known(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in settings.items():
        several = value if isinstance(value, list) else [value]
        if any(isinstance(one, str) and one.startswith("custom:") for one in several):
            raise SettingsError(
                f"Expected your own {name} again, got {value!r} in run.toml; "
                f"give it as {name}=, a folder holds no code."
            )
    return settings


def _check_targets(run: Run, data: Data) -> None:
    """Refuse targets that the run's outputs for these inputs do not fit."""
    outputs = _applied(run, data.x, "data.x")
    outputs_fit(outputs, data.y, run.plan.loss)
    if is_cross_entropy(run.plan):
        check_targets(data, "data", jax.tree.leaves(outputs)[0].shape[-1], run.plan.loss)


def _applied(run: Run, inputs: PyTree, what: str) -> PyTree:
    try:
        return check_applied(run.model, run.plan, run.hyper, run.variables, inputs)
    except ModelError as error:
        shapes = jax.tree.map(lambda leaf: tuple(leaf.shape[1:]), inputs)
        raise DataError(
            f"Expected {what} to have examples like the training data's, got shape {shapes}, with "
            f"which the model fails ({reason(error.__cause__ or error)}); prepare both alike."
        ) from error


def _size(run: Run, batch_size: int | None) -> int:
    if batch_size is None:
        return run.plan.eval_batch_size
    check_plan(replace(run.plan, batch_size=batch_size))
    return batch_size


def _hyper(run: Run) -> Hyper:
    return trace_hyper(run.hyper)


def _batches(data: PyTree, size: int) -> Any:
    batches = batching(count_examples(data), size)
    for first in range(0, batches.full * size + batches.short, size):
        rows = slice(first, first + size)
        yield jax.tree.map(partial(_rows, rows), data)


def _rows(rows: slice, leaf: Any) -> jax.Array:
    return jnp.asarray(leaf[rows])


_scores = jax.jit(scores_of, static_argnums=(0, 1))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _outputs(
    by: str, model: Model, plan: Plan, variables: Variables, hyper: Hyper, batch: PyTree
) -> PyTree:
    kind = predict_batch if by == "batch" else predict_examples
    return kind(bind(model, plan, hyper), variables, batch)
