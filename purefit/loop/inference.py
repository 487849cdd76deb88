"""What is done with a run afterwards: evaluate it, predict with it, load it from its folder."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.batches import batching, count_examples
from purefit.core.checks import check_data, check_inputs, normalise
from purefit.core.evaluate import evaluate_batch, predict_batch, predict_examples
from purefit.core.labels import check_targets
from purefit.core.losses import find_loss
from purefit.core.metrics import find_metrics
from purefit.core.run import bind
from purefit.core.settings import Hyper, Plan, known_name, resolve
from purefit.core.state import trace_hyper
from purefit.core.types import Data, Model, PyTree, Variables
from purefit.errors import CheckpointError, RunFolderError, SettingsError
from purefit.io.checkpoints import newest, restore, step_path, steps, verify
from purefit.io.folder import RunFolder
from purefit.loop.programs import form_of, programs_for
from purefit.loop.record import Run, Tally, Timings, as_columns
from purefit.loop.settings import Settings, sort_settings
from purefit.models.doors import as_model, sized

__all__ = ["evaluate", "load", "predict"]


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
    _check_width(run, data)
    tally = Tally()
    for batch in _batches(data, batch_size or run.plan.eval_batch_size):
        tally.add(jax.device_get(_scores(run.model, run.plan, run.variables, _hyper(run), batch)))
    return tally.means("")


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
    parts = [
        jax.device_get(_outputs(by, run.model, run.plan, run.variables, _hyper(run), batch))
        for batch in _batches(inputs, batch_size or run.plan.eval_batch_size)
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
    with RunFolder.open(Path(folder), lock=False) as opened:
        saved = opened.read_settings()
        path, manifest = _find(opened, which)
    names = {**Hyper.__dataclass_fields__, **Plan.__dataclass_fields__}
    flat = {name: value for name, value in saved.items() if name in names}
    hyper, plan, _ = sort_settings(_known({**flat, **settings}))
    record = saved["record"]
    network = sized(as_model(model), record.get("outputs"))
    examples = record["examples"]
    form = form_of(
        Data(
            jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct((examples, *leaf.shape[1:]), leaf.dtype), like
            ),
            (),
        )
    )
    hyper = resolve(hyper, plan, network.reads)
    programs = programs_for(network, plan, hyper, form, None)
    state = restore(path, manifest, programs.state_form)
    return Run(
        model=network,
        plan=plan,
        hyper=hyper,
        seed=saved["seed"],
        state=state,
        history=as_columns(manifest.record["rows"]),
        timings=Timings(),
        mode=manifest.record["mode"],
        folder=Path(folder),
    )


def _find(opened: RunFolder, which: str) -> tuple[Path, Any]:
    found = newest(opened.checkpoints)
    if found is None:
        raise RunFolderError(
            f"Expected a saved step in {opened.checkpoints}, got none; resume the run first."
        )
    if which == "last":
        return found
    scored = []
    for step in steps(opened.checkpoints):
        path = step_path(opened.checkpoints, step)
        try:
            manifest = verify(path)
        except CheckpointError:
            continue
        if manifest.score is not None:
            scored.append((manifest.score, -step, path, manifest))
    if not scored:
        return found
    _, _, path, manifest = max(scored, key=lambda one: one[:2])
    return path, manifest


def _known(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in settings.items():
        several = value if isinstance(value, list) else [value]
        if any(isinstance(one, str) and one.startswith("custom:") for one in several):
            raise SettingsError(
                f"Expected your own {name} again, got {value!r} in run.toml; "
                f"give it as {name}=, a folder holds no code."
            )
    return settings


def _check_width(run: Run, data: Data) -> None:
    if run.plan.loss == "cross_entropy":
        apply = bind(run.model, run.plan, _hyper(run))
        one = jax.tree.map(lambda leaf: leaf[:1], data.x)
        shapes = jax.eval_shape(partial(predict_batch, apply), run.variables, one)
        check_targets(data, "data", jax.tree.leaves(shapes)[0].shape[-1], run.plan.loss)


def _hyper(run: Run) -> Hyper:
    return trace_hyper(run.hyper)


def _batches(data: PyTree, size: int) -> Any:
    batches = batching(count_examples(data), size)
    for first in range(0, batches.full * size + batches.short, size):
        rows = slice(first, first + size)
        yield jax.tree.map(partial(_rows, rows), data)


def _rows(rows: slice, leaf: Any) -> jax.Array:
    return jnp.asarray(leaf[rows])


@partial(jax.jit, static_argnums=(0, 1))
def _scores(model: Model, plan: Plan, variables: Variables, hyper: Hyper, batch: Data) -> Any:
    metrics = find_metrics(plan.metrics, plan.loss)
    apply = bind(model, plan, hyper)
    return evaluate_batch(apply, find_loss(plan.loss), metrics, variables, batch)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _outputs(
    by: str, model: Model, plan: Plan, variables: Variables, hyper: Hyper, batch: PyTree
) -> PyTree:
    kind = predict_batch if by == "batch" else predict_examples
    return kind(bind(model, plan, hyper), variables, batch)
