"""Checks of data and labels: what is let through unchanged, and every kind of what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from purefit.core.checks import check_data, check_inputs, check_same_form, normalise
from purefit.core.types import Data
from tests.core.refusal import refused

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)
INT32 = np.iinfo(np.int32)


def same(ours, given):
    return ours.dtype == given.dtype and np.array_equal(np.asarray(ours), np.asarray(given))


# How examples may be given


@pytest.mark.parametrize("given_as", [Data(X, Y), (X, Y), {"x": X, "y": Y}, {"y": Y, "x": X}])
def test_normalise_takes_data_a_pair_or_a_dict(given_as):
    made = normalise(given_as, "train")
    assert isinstance(made, Data)
    assert made.x is X
    assert made.y is Y


@pytest.mark.parametrize(
    "given_as",
    [X, [X, Y], (X,), (X, Y, Y), {"x": X}, {"x": X, "y": Y, "z": Y}, {}, None, "mnist", 7],
    ids=["array", "list", "one", "three", "x only", "z too", "empty", "None", "name", "number"],
)
def test_normalise_refuses_anything_else(given_as):
    assert "train to be a pair (x, y)" in refused(normalise, given_as, "train")


def test_normalise_keeps_structure():
    x = {"image": X, "more": (X, [X, X]), "none": None}
    made = normalise((x, Y), "train")
    assert jax.tree.structure(made.x) == jax.tree.structure(x)
    assert all(leaf is X for leaf in jax.tree.leaves(made.x))


def test_normalise_turns_lists_of_numbers_into_arrays():
    made = normalise(([[1.5, 2], [3, 4]], [0, 1]), "train")
    assert same(made.x, np.array([[1.5, 2], [3, 4]], np.float32))
    assert same(made.y, np.array([0, 1], np.int32))
    made = normalise(({"a": [[True], [False]]}, [np.int64(3), np.int64(4)]), "train")
    assert same(made.x["a"], np.array([[True], [False]]))
    assert same(made.y, np.array([3, 4], "i4"))


def test_normalise_takes_what_turns_into_an_array():
    class Frame:
        def __array__(self, dtype=None, copy=None):
            return X.astype(np.float64)

    assert same(normalise((Frame(), Y), "train").x, X)


# Dtypes


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16, jnp.bfloat16, np.float32])
@pytest.mark.parametrize("library", [np, jnp])
def test_normalise_keeps_a_dtype_that_jax_keeps(dtype, library):
    leaf = library.asarray(X % 2, dtype)
    assert normalise((leaf, Y), "train").x is leaf


def test_normalise_makes_byte_targets_numbers():
    for library in (np, jnp):
        made = normalise((X, library.asarray(Y, np.uint8)), "train")
        assert same(made.y, Y)


def test_normalise_leaves_jax_arrays_on_their_device():
    device = jax.devices()[1]
    x, y = jax.device_put(X, device), jax.device_put(Y.astype(np.int8), device)
    made = normalise((x, y), "train")
    assert made.x is x
    assert isinstance(made.y, jax.Array)
    assert made.y.devices() == {device}
    assert same(made.y, Y)


@given(
    st.one_of(
        arrays.arrays(dtype, arrays.array_shapes(max_dims=3, max_side=4))
        for dtype in [
            arrays.integer_dtypes(),
            arrays.unsigned_integer_dtypes(),
            arrays.floating_dtypes(),
            arrays.boolean_dtypes(),
        ]
    )
)
def test_normalise_preserves_values_or_refuses(values):
    fits = True
    if values.dtype.kind in "iu":
        fits = all(INT32.min <= value <= INT32.max for value in values.ravel().tolist())
    if values.dtype.kind == "f" and values.dtype.itemsize > 4:
        with np.errstate(over="ignore"):
            fits = not np.any(np.isinf(values.astype(np.float32)) & np.isfinite(values))
    if not fits:
        refused(normalise, (values, Y), "train")
        return
    made = normalise((values, values), "train")
    for side in made:
        assert side.shape == values.shape
        assert side.dtype.isnative
        assert jnp.asarray(side).dtype == side.dtype
        if values.dtype.kind == "f":
            assert side.dtype == (np.float16 if values.dtype.itemsize == 2 else np.float32)
            assert np.array_equal(side, values.astype(side.dtype), equal_nan=True)
        else:
            assert side.tolist() == values.tolist()
    assert made.y.dtype != np.uint8


@given(arrays.arrays(np.int64, 5, elements=st.integers(INT32.min - 3, INT32.min + 3)))
def test_normalise_knows_the_lower_edge_of_int32(values):
    if values.min() < INT32.min:
        refused(normalise, (values, Y), "train")
    else:
        assert normalise((values, Y), "train").x.tolist() == values.tolist()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32"])
def test_normalise_names_the_first_integer_out_of_range(dtype):
    values = np.zeros((3, 2), dtype)
    values[1, 1] = values[2, 0] = 2**31
    text = refused(normalise, (X, {"id": values}), "train")
    assert "train.y['id']" in text
    assert "2147483648 at index [1, 1]" in text
    values[values > 0] -= 1
    assert normalise((X, values), "train").y.tolist() == values.tolist()


def test_normalise_names_the_first_float_out_of_range():
    values = np.array([1.0, np.inf, np.nan, 1e39, 1e40])
    text = refused(normalise, (values, Y), "train")
    assert "train.x" in text
    assert "float32" in text
    assert "1e+39 at index [3]" in text


def test_normalise_leaves_infinity_and_nan_to_check_data():
    made = normalise((np.array([np.inf, -np.inf, np.nan]), Y), "train")
    assert np.array_equal(made.x, np.array([np.inf, -np.inf, np.nan], "f4"), equal_nan=True)


@pytest.mark.parametrize(
    "leaf",
    [
        np.array([1, None], dtype=object),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        np.array([1j, 2]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([1], "timedelta64[s]"),
        np.zeros(2, [("a", "f4")]),
        jnp.zeros(2, jnp.float8_e4m3fn),
        np.zeros(2, jnp.int4),
        ["a", "b"],
        [1, None],
        1j,
    ],
    ids=lambda leaf: str(getattr(leaf, "dtype", leaf)),
)
def test_normalise_refuses_other_dtypes(leaf):
    text = refused(normalise, ({"image": leaf}, Y), "train")
    assert "train.x['image']" in text
    assert "dtype" in text


def test_normalise_refuses_keys():
    assert "key<" in refused(normalise, (jax.random.split(jax.random.key(0), 6), Y), "train")


@pytest.mark.parametrize(
    "leaf", ["text", {1, 2}, object(), iter([1]), range(6)], ids=lambda leaf: str(leaf)[:9]
)
def test_normalise_refuses_what_is_no_array(leaf):
    text = refused(normalise, ((X, leaf), Y), "train")
    assert "train.x[1]" in text
    assert type(leaf).__name__ in text


def test_normalise_refuses_ragged_lists():
    assert "equal shape" in refused(normalise, ([[1, 2], [3]], Y), "train")


def test_normalise_refuses_what_will_not_become_an_array():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("Can't. Call detach().")

    assert "Tensor" in refused(normalise, (Tensor(), Y), "train")


def test_normalise_refuses_sparse_matrices():
    sparse = pytest.importorskip("scipy.sparse")
    for matrix in (sparse.csr_matrix(X), sparse.coo_array(X)):
        assert "toarray()" in refused(normalise, (matrix, Y), "train")


def test_normalise_refuses_masked_values_only():
    masked = np.ma.masked_greater(X, 9)
    assert "2 masked" in refused(normalise, (masked, Y), "train")
    assert same(normalise((np.ma.masked_array(X), Y), "train").x, X)


# Lengths and values


def test_check_data_lets_good_examples_through():
    for x in (X, X.astype(np.uint8), X > 3, jnp.asarray(X, jnp.bfloat16), {"a": X, "b": X[:, 0]}):
        check_data(Data(x, Y), "train")
        check_data(Data(x, {"a": Y, "b": X}), "train")


@pytest.mark.parametrize("empty", [None, (), {}, [], {"a": None}], ids=str)
def test_check_data_needs_an_array_on_each_side(empty):
    assert "train.x to hold an array" in refused(check_data, Data(empty, Y), "train")
    assert "valid.y to hold an array" in refused(check_data, Data(X, empty), "valid")


def test_check_data_needs_an_axis_of_examples():
    assert "train.y" in refused(check_data, Data(X, np.float32(3)), "train")


def test_check_data_names_leaves_of_unequal_lengths():
    text = refused(check_data, Data({"a": X, "b": X[:4]}, Y), "train")
    assert "train.x['a'] and train.x['b']" in text
    assert "got 6 and 4" in text
    text = refused(check_data, Data(X, Y[:5]), "valid")
    assert "valid.x and valid.y" in text
    assert "got 6 and 5" in text


def test_check_data_refuses_no_examples():
    assert "(0, 2)" in refused(check_data, Data(X[:0], Y[:0]), "train")


def test_check_data_refuses_examples_without_features():
    assert "train.y" in refused(check_data, Data(X, X[:, :0]), "train")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32])
@pytest.mark.parametrize("library", [np, jnp])
def test_check_data_counts_and_places_what_is_not_finite(value, dtype, library):
    bad = X.copy()
    bad[2, 1] = value
    bad = library.asarray(bad, dtype)
    text = refused(check_data, Data({"a": bad}, Y), "train")
    assert "train.x['a']" in text
    assert "got 1 that is" in text
    assert "[2, 1]" in text
    many = library.concatenate([bad, bad])
    text = refused(check_data, Data(library.concatenate([Y, Y]), many), "valid")
    assert "valid.y" in text
    assert "got 2 that are" in text
    assert "[2, 1]" in text


def test_check_inputs_normalises_and_checks():
    assert same(check_inputs(X.astype(np.float64)), X)
    made = check_inputs({"a": [1, 2], "b": X[:2]})
    assert same(made["a"], np.array([1, 2], np.int32))
    assert same(made["b"], X[:2])
    assert "inputs['b']" in refused(check_inputs, {"a": X, "b": X[:2]})
    assert "images" in refused(check_inputs, X * np.nan, "images")
    assert "inputs to hold an array" in refused(check_inputs, {})


# Train against valid


def test_check_same_form_lets_lengths_differ():
    check_same_form(Data({"a": X}, Y), Data({"a": X[:2]}, Y[:2]))
    check_same_form(Data(X, Y), Data(jnp.asarray(X), jnp.asarray(Y)))


def test_check_same_form_compares_structure():
    text = refused(check_same_form, Data({"a": X, "b": X}, Y), Data({"a": X}, Y))
    assert "train.x['b']" in text
    assert "no arrays" in refused(check_same_form, X, None, ("x of the run", "inputs"))


def test_check_same_form_compares_shapes():
    text = refused(check_same_form, Data({"a": X}, Y), Data({"a": X[:, :1]}, Y))
    assert "valid.x['a']" in text
    assert "(2,)" in text
    assert "(1,)" in text
    assert "valid.y" in refused(check_same_form, Data(X, Y), Data(X, Y[:, None]))


def test_check_same_form_compares_dtypes():
    text = refused(check_same_form, Data(X, Y), Data(X.astype(np.uint8), Y))
    assert "valid.x" in text
    assert "float32" in text
    assert "uint8" in text
