"""One training step as a pure function: `(state, batch) -> (state, info)`."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from purefit.core.batches import count_examples
from purefit.core.losses import per_example
from purefit.core.metrics import Mean, mean_of
from purefit.core.state import TrainState
from purefit.core.streams import Stream, stream
from purefit.core.types import Apply, Data, Loss, Metric, PyTree, Variables

__all__ = ["Info", "Step", "make_step", "measure"]

Info = dict[str, Mean]
"""What a step tells and the next one does not need: the loss and each metric, as `Mean`s."""

Step = Callable[[TrainState, Data], tuple[TrainState, Info]]


def make_step(
    apply: Apply, loss: Loss, metrics: Mapping[str, Metric], optimizer: optax.GradientTransformation
) -> Step:
    """Make the step: forward, mean loss, gradient, update.

    Args:
        apply: The model's forward pass; it takes prepared or raw inputs as it was bound.
        loss: One value per example; the gradient is that of their mean.
        metrics: Functions like a loss, by the name that they get in `info`.
        optimizer: Turns gradients into updates.

    Returns:
        A pure function of a state and a batch (of any size). `info["loss"]` is that of the
        parameters before the update. Nothing is checked: a loss that is not finite makes
        parameters that are not finite (`purefit.core.run.advance` holds the state back then).
    """

    def step(state: TrainState, batch: Data) -> tuple[TrainState, Info]:
        key = stream(state.key, Stream.MODEL, state.step)

        def objective(params: PyTree) -> tuple[Float[Array, ""], tuple[PyTree, Info]]:
            variables = Variables(params, state.model_state)
            outputs, model_state = apply(variables, batch.x, key=key, train=True)
            info = measure(loss, metrics, outputs, batch)
            return info["loss"].value, (model_state, info)

        grads, (model_state, info) = jax.grad(objective, has_aux=True)(state.params)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        after = TrainState(
            step=state.step + 1,
            key=state.key,
            params=optax.apply_updates(state.params, updates),
            model_state=model_state,
            opt_state=opt_state,
        )
        return after, info

    return step


def measure(loss: Loss, metrics: Mapping[str, Metric], outputs: PyTree, batch: Data) -> Info:
    """Sum the loss and every metric over a batch, from the model's outputs for it."""
    size = count_examples(batch.x)
    values = {"loss": per_example(loss, outputs, batch.y, size)}
    for name, metric in metrics.items():
        values[name] = per_example(metric, outputs, batch.y, size, what="metric")
    return {name: mean_of(value.astype(jnp.float32)) for name, value in values.items()}
