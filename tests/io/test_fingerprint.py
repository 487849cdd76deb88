import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purefit.core.types import Data, Variables
from purefit.errors import DataError
from purefit.io import fingerprint
from purefit.io.fingerprint import data_fingerprint, hash_leaves, host_leaves, state_hash


def tree():
    return Variables(
        params=[{"w": jnp.arange(6, dtype=jnp.float32).reshape(2, 3)}, {"b": jnp.zeros(())}],
        state={"key": jax.random.key(3), "many": jax.random.split(jax.random.key(1, impl="rbg"))},
    )


def test_leaves_have_paths_dtypes_and_key_data():
    leaves = host_leaves(tree())
    assert [leaf.path for leaf in leaves] == [
        ".params[0]['w']",
        ".params[1]['b']",
        ".state['key']",
        ".state['many']",
    ]
    assert [leaf.dtype for leaf in leaves] == [
        "float32",
        "float32",
        "key<threefry2x32>",
        "key<rbg>",
    ]
    assert [leaf.array.shape for leaf in leaves] == [(2, 3), (), (2,), (2, 4)]
    np.testing.assert_array_equal(leaves[2].array, jax.random.key_data(jax.random.key(3)))


def test_leaves_outlive_donated_buffers():
    state = {"w": jnp.arange(1000.0), "n": np.arange(3)}
    leaves = {leaf.path: leaf.array for leaf in host_leaves(state)}
    step = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0)
    after = step({"w": state["w"]})
    state["n"][:] = 7
    assert state["w"].is_deleted()
    assert float(after["w"][0]) == -1
    np.testing.assert_array_equal(leaves["['w']"], np.arange(1000.0))
    np.testing.assert_array_equal(leaves["['n']"], np.arange(3))
    assert all(array.flags.owndata for array in leaves.values())


def test_hash_of_leaves_is_the_hash_of_the_tree():
    assert hash_leaves(host_leaves(tree())) == state_hash(tree())
    assert len(state_hash(tree())) == 64


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.float32([1, 2, 3])},
        {"b": np.float32([1, 2, 4])},
        {"b": np.int32([1, 2, 3])},
        {"b": np.float32([[1, 2, 3]])},
        {"b": np.float32([1, 2, 3]), "c": np.float32(0)},
        {"b": np.float32([1, 2]), "c": np.float32([3])},
        {"b": np.float32([1, 2, 3]).view(np.int32)},
        {},
    ],
)
def test_every_difference_changes_the_hash(other):
    assert data_fingerprint(other) != data_fingerprint({"b": np.float32([1, 2, 3])})


def test_bits_count_and_not_values():
    assert state_hash(np.float32(0.0)) != state_hash(np.float32(-0.0))
    nan = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert state_hash(nan[0]) == state_hash(nan[0])
    assert state_hash(nan[0]) != state_hash(nan[1])


def test_key_differs_from_its_data():
    key = jax.random.key(3)
    assert state_hash(key) != state_hash(jax.random.key_data(key))


def test_memory_layout_and_home_do_not_count(monkeypatch):
    monkeypatch.setattr(fingerprint, "_BLOCK_BYTES", 64)
    plain = np.arange(7 * 5 * 3, dtype=np.float32).reshape(7, 5, 3)
    wide = np.zeros((14, 5, 3), np.float32)
    wide[::2] = plain
    same = [plain.copy(order="F"), wide[::2], plain.astype(">f4"), jnp.asarray(plain)]
    assert {data_fingerprint(Data(x, plain)) for x in same} == {
        data_fingerprint(Data(plain, plain))
    }
    assert data_fingerprint(np.array(3, ">i2")) == data_fingerprint(np.array(3, "<i2"))


def test_small_dtypes_and_empty_arrays_can_be_hashed():
    seen = {
        data_fingerprint(np.ones(shape, jnp.dtype(dtype)))
        for dtype in ("bool", "bfloat16", "float16", "int4", "float8_e4m3fn", "complex64")
        for shape in ((), (0, 3), (2, 3))
    }
    assert len(seen) == 18


def test_python_objects_are_refused():
    with pytest.raises(DataError, match=r"Expected leaf \['y'\] to be an array of numbers"):
        data_fingerprint({"y": np.array([{}, None])})
