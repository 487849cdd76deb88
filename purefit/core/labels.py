"""Checks of targets against the loss and the model's outputs, before anything is compiled."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purefit.core.losses import cross_entropy, mean_squared_error
from purefit.core.types import Data, PyTree
from purefit.errors import DataError, ModelError, PurefitWarning

__all__ = ["check_labels", "check_targets", "outputs_fit", "outputs_for"]

_NAMED_AT_MOST = 5
_MOST_CLASSES = 2**24


def check_labels(
    train: Data, valid: Data | None, outputs: int | None, loss: str | Callable[..., Any]
) -> None:
    """Refuse labels that cross-entropy cannot take; nothing is asked of targets of other losses.

    Args:
        train: Normalised and checked training examples.
        valid: The same for validation, or None.
        outputs: The model's number of classes; None where it is found in the labels.
        loss: The plan's loss.

    Raises:
        DataError: The labels have another form, or one is out of range.

    Warns:
        PurefitWarning: A class never occurs in the training labels.
    """
    if not _is(loss, "cross_entropy", cross_entropy):
        return
    ours = _labels(train.y, outputs, "train.y")
    theirs = None if valid is None else _labels(valid.y, outputs, "valid.y")
    _warn_of_gaps(ours)
    if theirs is not None:
        unseen = np.setdiff1d(theirs, ours)
        if unseen.size:
            _warn(f"valid.y to have only classes that occur in train.y, got {_classes(unseen)}")


def check_targets(
    data: Data, what: str, outputs: int | None, loss: str | Callable[..., Any]
) -> None:
    """Do for one set of examples, whatever it is called, what `check_labels` does, without warning.

    Args:
        data: Normalised and checked examples.
        what: What they are called in messages.
        outputs: The model's number of classes; None asks for no upper limit.
        loss: The plan's loss.

    Raises:
        DataError: The labels have another form, or one is out of range.
    """
    if _is(loss, "cross_entropy", cross_entropy):
        _labels(data.y, outputs, f"{what}.y")


def outputs_for(train: Data, loss: str | Callable[..., Any], valid: Data | None = None) -> int:
    """Find how many outputs a model needs that leaves the number open; ask for no other model.

    Args:
        train: Normalised and checked training examples.
        loss: The plan's loss.
        valid: The same for validation, or None.

    Returns:
        For cross-entropy the largest label plus one, else the width of the targets: 1 for `[n]`,
        k for `[n, k]`.

    Raises:
        DataError: The targets do not tell, or are no labels.
    """
    if _is(loss, "cross_entropy", cross_entropy):
        highest = [int(_labels(train.y, None, "train.y").max())]
        if valid is not None:
            highest.append(int(_labels(valid.y, None, "valid.y").max()))
        if max(highest) >= _MOST_CLASSES:
            raise DataError(
                f"Expected train.y and valid.y to have class labels below {_MOST_CLASSES}, got "
                f"{max(highest)}; number the classes from 0 without gaps."
            )
        return max(highest) + 1
    leaves = jax.tree.leaves(train.y)
    whole = not jnp.issubdtype(leaves[0].dtype, jnp.floating)
    mine = not _is(loss, "mean_squared_error", mean_squared_error)
    if len(leaves) != 1 or leaves[0].ndim > 2 or (whole and mine):
        raise DataError(
            "Expected targets that tell the number of outputs, one array of shape [n] or [n, k] "
            f"(of floats, for a loss of your own), got {_shapes(train.y)}; give the model its "
            "outputs=."
        )
    return 1 if leaves[0].ndim == 1 else leaves[0].shape[1]


def outputs_fit(outputs: PyTree, y: PyTree, loss: str | Callable[..., Any]) -> None:
    """Refuse a model whose outputs do not fit the targets; a loss of one's own sees for itself.

    Args:
        outputs: What `jax.eval_shape` says of the outputs for a batch.
        y: Normalised targets, of as many examples as you like.
        loss: The plan's loss.

    Raises:
        ModelError: The outputs have another structure or shape.
    """
    if _is(loss, "cross_entropy", cross_entropy):
        leaves = jax.tree.leaves(outputs)
        if len(leaves) != 1 or leaves[0].ndim != 2:
            raise ModelError(
                "Expected the model to give logits of shape [batch, classes] for cross_entropy, "
                f"got {_shapes(outputs)}; change its last layer, or choose another loss."
            )
    elif _is(loss, "mean_squared_error", mean_squared_error):
        given, wanted = jax.tree.leaves(outputs), jax.tree.leaves(y)
        if [leaf.shape[1:] for leaf in given] != [leaf.shape[1:] for leaf in wanted]:
            remedy = "change its last layer, or the targets"
            if [leaf.shape[1:] for leaf in given] == [(1,)] and [a.ndim for a in wanted] == [1]:
                remedy = "give the targets as y[:, None]"
            raise ModelError(
                f"Expected the model's outputs to have the shape of the targets, {_shapes(y)}, "
                f"got {_shapes(outputs)}; {remedy}."
            )


def _is(loss: str | Callable[..., Any], name: str, function: Callable[..., Any]) -> bool:
    return loss == name or loss is function


def _labels(y: PyTree, outputs: int | None, name: str) -> np.ndarray:
    leaves = jax.tree.leaves(y)
    if len(leaves) != 1:
        raise _no_labels(name, f"{len(leaves)} arrays", "give one, or a loss of your own")
    labels = np.asarray(leaves[0])
    if labels.ndim != 1:
        if labels.shape[1:] == (1,):
            remedy = "squeeze it, y[:, 0]"
        elif _is_one_hot(labels):
            remedy = "turn one-hot rows into class numbers, y.argmax(axis=1)"
        else:
            remedy = "give one label per example, or choose loss='mean_squared_error'"
        raise _no_labels(name, f"shape {labels.shape}", remedy)
    if labels.dtype.kind not in "iu":
        whole = labels.dtype == np.bool_ or bool(np.all(labels == np.floor(labels)))
        use = "convert with .astype('int32')" if whole else "use loss='mean_squared_error'"
        raise _no_labels(name, f"dtype {labels.dtype}", use)
    _check_range(labels, outputs, name)
    return labels


def _no_labels(name: str, got: str, remedy: str) -> DataError:
    return DataError(
        f"Expected {name} to be one array of integer class labels, shape [n], for cross_entropy, "
        f"got {got}; {remedy}."
    )


def _is_one_hot(labels: np.ndarray) -> bool:
    if labels.ndim != 2:
        return False
    return bool(np.all((labels == 0) | (labels == 1)) and np.all((labels == 1).sum(axis=1) == 1))


def _check_range(labels: np.ndarray, outputs: int | None, name: str) -> None:
    bad = labels < 0 if outputs is None else (labels < 0) | (labels >= outputs)
    if not bad.any():
        return
    row = int(np.argmax(bad))
    allowed = "of at least 0" if outputs is None else f"from 0 to {outputs - 1}"
    remedy = "number the classes from 0"
    if labels[row] >= 0:
        remedy = f"number the classes from 0, or give the model outputs={int(labels.max()) + 1}"
    raise DataError(
        f"Expected {name} to have labels {allowed}, got {labels[row]} in row {row}; {remedy}."
    )


def _warn_of_gaps(labels: np.ndarray) -> None:
    present = np.unique(labels)
    absent = int(present[-1]) + 1 - present.size
    if absent:
        # Among the first few numbers more than are present, enough absent ones must be found.
        some = np.arange(min(int(present[-1]) + 1, present.size + _NAMED_AT_MOST))
        first = np.setdiff1d(some, present)
        _warn(f"every class up to {present[-1]} to occur in train.y, got {_classes(first, absent)}")


def _classes(classes: np.ndarray, count: int | None = None) -> str:
    count = classes.size if count is None else count
    named = ", ".join(str(label) for label in classes[:_NAMED_AT_MOST])
    more = f" and {count - _NAMED_AT_MOST} more" if count > _NAMED_AT_MOST else ""
    return f"{'class' if count == 1 else 'classes'} {named}{more}"


def _warn(problem: str) -> None:
    warnings.warn(
        f"Expected {problem}, which the model cannot learn; see whether labels or examples are "
        "missing.",
        PurefitWarning,
        stacklevel=3,
    )


def _shapes(tree: PyTree) -> str:
    leaves = jax.tree.leaves(tree)
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "no arrays"
