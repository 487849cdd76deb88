"""Labels and targets against the loss and the model's outputs."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.labels import check_labels, check_targets, outputs_fit, outputs_for
from purefit.core.losses import cross_entropy, mean_squared_error
from purefit.core.types import Data
from purefit.errors import ModelError, PurefitWarning
from tests.core.refusal import refused

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)
INT32 = np.iinfo(np.int32)


# Labels


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("loss", ["cross_entropy", cross_entropy])
def test_check_labels_lets_good_labels_through(quiet, loss, dtype):
    train = Data(X, Y.astype(dtype))
    for outputs in (None, 3, 4):
        check_labels(train, None, outputs, loss)
        check_labels(train, Data(X[:2], train.y[:2]), outputs, loss)
    check_labels(Data(X, {"only": jnp.asarray(Y)}), None, 3, loss)


@pytest.mark.parametrize("loss", ["mean_squared_error", mean_squared_error, lambda o, y: o])
def test_check_labels_asks_nothing_for_other_losses(quiet, loss):
    check_labels(Data(X, X), Data(X, -X), 2, loss)
    check_targets(Data(X, X), "data", 2, loss)


@pytest.mark.parametrize(
    ("y", "remedy"),
    [
        (Y.astype(np.float32), ".astype('int32')"),
        (Y > 0, ".astype('int32')"),
        (Y + np.float32(0.5), "loss='mean_squared_error'"),
        (Y[:, None], "y[:, 0]"),
        (Y[:, None].astype(np.float32), "y[:, 0]"),
        (np.eye(3, dtype=np.float32)[Y], "argmax"),
        (np.eye(3, dtype=np.int32)[Y], "argmax"),
        (X, "one label per example"),
        (np.zeros((6, 2, 2), np.int32), "one label per example"),
        ((Y, Y), "a loss of your own"),
    ],
    ids=["whole", "bool", "float", "n1", "n1 float", "hot", "int hot", "wide", "3-D", "two"],
)
def test_check_labels_refuses_other_forms(y, remedy):
    assert remedy in refused(check_labels, Data(X, y), None, 3, "cross_entropy")
    text = refused(check_labels, Data(X, Y), Data(X, y), 3, "cross_entropy")
    assert "valid.y" in text
    assert remedy in text
    assert remedy in refused(outputs_for, Data(X, y), "cross_entropy")
    assert "data.y" in refused(check_targets, Data(X, y), "data", None, "cross_entropy")


def test_check_labels_refuses_negative_labels():
    bad = np.array([0, 1, -1, 2, -2, 0], np.int32)
    for outputs in (None, 3):
        text = refused(check_labels, Data(X, bad), None, outputs, "cross_entropy")
        assert "train.y" in text
        assert "got -1 in row 2" in text
    assert "from 0 to 2" in text
    assert "row 2" in refused(check_labels, Data(X, Y), Data(X, bad), None, "cross_entropy")
    assert "row 2" in refused(outputs_for, Data(X, bad), "cross_entropy")


def test_check_labels_refuses_labels_beyond_the_outputs():
    text = refused(check_labels, Data(X, Y), None, 2, "cross_entropy")
    assert "from 0 to 1" in text
    assert "got 2 in row 2" in text
    assert "outputs=3" in text
    text = refused(check_labels, Data(X, Y), Data(X, Y + 1), 3, "cross_entropy")
    assert "valid.y" in text
    assert "got 3 in row 2" in text
    assert "outputs=4" in text


def warned(train, valid=None):
    with pytest.warns(PurefitWarning) as caught:
        check_labels(
            Data(X, np.array(train, np.int32)),
            None if valid is None else Data(X, np.array(valid, np.int32)),
            None,
            "cross_entropy",
        )
    assert len(caught) == 1
    return str(caught[0].message)


def test_check_labels_warns_of_a_class_that_never_occurs():
    assert "class 1," in warned([0, 2, 2, 3])
    assert "classes 0, 1, 2, 3, 4 and 2 more" in warned([7, 8])
    assert "classes 0, 2, 3, 4, 6 and 2147483640 more" in warned([1, 5, INT32.max])


def test_check_labels_warns_of_a_class_only_in_valid():
    text = warned([0, 1], [1, 2, 2])
    assert "class 2," in text
    assert "valid.y" in text
    assert "classes 2, 3, 4, 5, 6 and 1 more" in warned([0, 1], [2, 3, 4, 5, 6, 7])


def test_check_targets_never_warns(quiet):
    check_targets(Data(X, np.array([0, 5], np.int32)), "data", 6, "cross_entropy")
    text = refused(check_targets, Data(X, Y), "data", 2, "cross_entropy")
    assert "data.y" in text
    assert "row 2" in text


# Outputs


def test_outputs_for_counts_classes():
    for loss in ("cross_entropy", cross_entropy):
        assert outputs_for(Data(X, Y), loss) == 3
        assert outputs_for(Data(X, Y), loss, Data(X, Y + 4)) == 7
        assert outputs_for(Data(X, Y), loss, Data(X, Y[:1])) == 3
    assert outputs_for(Data(X, Y.astype(np.uint8)), "cross_entropy") == 3


def test_outputs_for_measures_targets():
    for loss in ("mean_squared_error", lambda outputs, targets: outputs):
        assert outputs_for(Data(X, X[:, 0]), loss) == 1
        assert outputs_for(Data(X, X), loss) == 2
    assert outputs_for(Data(X, Y), "mean_squared_error") == 1


@pytest.mark.parametrize(
    ("y", "loss"),
    [
        ((X, X), "mean_squared_error"),
        (X[:, :, None], "mean_squared_error"),
        (Y, lambda outputs, labels: outputs),
    ],
    ids=["two arrays", "3-D", "integers for a loss of one's own"],
)
def test_outputs_for_does_not_guess(y, loss):
    assert "outputs=" in refused(outputs_for, Data(X, y), loss)


def shape(*lengths):
    return jax.ShapeDtypeStruct(lengths, jnp.float32)


def test_outputs_fit_lets_fitting_outputs_through():
    outputs_fit(shape(2, 3), Y, "cross_entropy")
    outputs_fit(shape(2, 2), X, "mean_squared_error")
    outputs_fit({"a": shape(2, 2)}, {"a": X}, mean_squared_error)
    outputs_fit(shape(2), X[:, 0], "mean_squared_error")
    outputs_fit({"any": shape()}, Y, lambda outputs, labels: outputs)


@pytest.mark.parametrize("outputs", [shape(2), shape(2, 3, 1), (shape(2, 3), shape(2, 3)), ()])
def test_outputs_fit_wants_logits_for_cross_entropy(outputs):
    text = refused(outputs_fit, outputs, Y, "cross_entropy", error=ModelError)
    assert "[batch, classes]" in text


@pytest.mark.parametrize("outputs", [shape(2), shape(2, 1), shape(2, 2, 1), (), (shape(2, 2),) * 2])
def test_outputs_fit_wants_the_targets_shape_for_mean_squared_error(outputs):
    text = refused(outputs_fit, outputs, X, "mean_squared_error", error=ModelError)
    assert "float32[6, 2]" in text


def test_outputs_fit_knows_the_usual_slip_of_regression():
    text = refused(outputs_fit, shape(2, 1), X[:, 0], "mean_squared_error", error=ModelError)
    assert "y[:, None]" in text
