import json
import math
import os
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from purefit.core.state import start
from purefit.errors import CheckpointError, PurefitWarning, SaveError
from purefit.io import checkpoints, steps
from purefit.io.checkpoints import (
    Saver,
    clear_leftovers,
    newest,
    prune,
    restore,
    step_path,
    verify,
    write,
)
from purefit.io.fingerprint import host_leaves, state_hash
from purefit.models.mlp import mlp

INTEGERS = ["bool", "int4", "int8", "int16", "int32", "uint4", "uint8", "uint16", "uint32"]
FLOATS = ["float16", "bfloat16", "float32", "complex64"]
SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e4m3b11fnuz"]
DTYPES = INTEGERS + FLOATS + SMALL


@pytest.fixture
def state():
    return start(mlp(16, 8, outputs=4), optax.adam(1e-3), jax.random.key(1), jnp.zeros((2, 6)))


def bits(dtype, shape):
    """Random bits of a dtype (a valid pattern where not every pattern is one)."""
    drawn = np.random.default_rng(0).integers(0, 256, (*shape, 8), np.uint8)
    if dtype in ("bool", "int4", "uint4"):
        return (drawn[..., 0] % 2).astype(jnp.dtype(dtype))
    return drawn.view(np.uint8)[..., : jnp.dtype(dtype).itemsize].copy().view(dtype)[..., 0]


def saved(root, tree, step=1, record=None):
    path = write(root, step, host_leaves(tree), record or {})
    return path, verify(path)


def like(tree):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("shape", [(), (3, 5), (0, 3)], ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path, shape):
    tree = {name: jnp.array(bits(name, shape).view(jnp.dtype(name))) for name in DTYPES}
    back = restore(*saved(tmp_path, tree), tree)
    for name in DTYPES:
        assert back[name].dtype == tree[name].dtype, name
        assert back[name].shape == shape
        assert np.asarray(back[name]).tobytes() == np.asarray(tree[name]).tobytes(), name


def test_a_whole_state_comes_back_with_its_structure(tmp_path, state):
    path, manifest = saved(tmp_path, state, 469, {"epoch": 1})
    assert path.name == "step_00000469"
    assert (manifest.step, manifest.record) == (469, {"epoch": 1})
    back = restore(path, manifest, state)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert state_hash(back) == state_hash(state) == manifest.state_sha256
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(back))
    assert not any(leaf.committed for leaf in jax.tree.leaves(back))
    np.testing.assert_array_equal(*[jax.random.normal(s.key, 3) for s in (state, back)])


def test_shapes_and_dtypes_are_enough_to_restore(tmp_path, state):
    tree = (state.key, state.params, state.opt_state)
    back = restore(*saved(tmp_path, tree), like(tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert state_hash(back) == state_hash(tree)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_come_back_as_keys_of_their_kind(tmp_path, impl):
    tree = [jax.random.key(5, impl=impl), jax.random.split(jax.random.key(6, impl=impl), 3)]
    path, manifest = saved(tmp_path, tree)
    for form in (tree, like(tree)):
        back = restore(path, manifest, form)
        assert [leaf.dtype for leaf in back] == [leaf.dtype for leaf in tree]
        assert state_hash(back) == state_hash(tree)
    with pytest.raises(CheckpointError, match=rf"got dtype key<{impl}>"):
        restore(path, manifest, [jax.random.key_data(tree[0]), tree[1]])


def test_a_tree_without_any_numbers(tmp_path):
    tree = {"none": jnp.zeros((0, 2)), "nothing": optax.EmptyState()}
    back = restore(*saved(tmp_path, tree), tree)
    assert back["none"].shape == (0, 2)


def test_sixty_four_bits_are_not_cut_in_silence(tmp_path):
    tree = {"n": np.arange(3, dtype=np.int64) + 2**40}
    path, manifest = saved(tmp_path, tree)
    with pytest.raises(CheckpointError, match=r"\['n'\].*int64, got int32.*jax_enable_x64"):
        restore(path, manifest, tree)
    with jax.enable_x64(True):
        assert state_hash(restore(path, manifest, tree)) == state_hash(tree)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"w": jnp.zeros((2, 3), jnp.int32)}, r"leaf \['w'\].*dtype int32, got dtype float32"),
        ({"w": jnp.zeros((2, 3), jnp.bfloat16)}, r"dtype bfloat16, got dtype float32"),
        ({"w": jnp.zeros((3, 2))}, r"leaf \['w'\].*shape \(3, 2\), got shape \(2, 3\)"),
        ({"w": jnp.zeros(6)}, r"shape \(6,\), got shape \(2, 3\)"),
        ({"w": jnp.zeros((2, 3)), "x": jnp.zeros(1)}, r"leaf \['x'\].*to be there, got no such"),
        ({}, r"leaf \['a'\].*not to be there, got one of shape \(\) and dtype int32"),
        ({"a": jnp.int32(0)}, r"leaf \['w'\].*not to be there"),
    ],
)
def test_the_first_difference_is_named(tmp_path, other, message):
    path, manifest = saved(tmp_path, {"a": jnp.int32(1), "w": jnp.ones((2, 3))})
    wanted = {"a": jnp.int32(0), **other} if other.keys() & {"w"} else other
    with pytest.raises(CheckpointError, match=message):
        restore(path, manifest, wanted)


def test_another_network_or_optimizer_is_refused(tmp_path, state):
    path, manifest = saved(tmp_path, state)
    inputs = jnp.zeros((2, 6))
    deeper = start(mlp(16, 8, 8, outputs=4), optax.adam(1e-3), jax.random.key(1), inputs)
    sgd = start(mlp(16, 8, outputs=4), optax.sgd(1e-3), jax.random.key(1), inputs)
    for other in (deeper, sgd):
        with pytest.raises(CheckpointError, match=r"Expected leaf .*use the model, optimizer"):
            restore(path, manifest, other)


def test_any_flipped_bit_is_found(tmp_path, state):
    path, _ = saved(tmp_path, state, record={"rows": [{"loss": 1e-7, "name": "é"}]})
    draw = np.random.default_rng(0)
    for file in files_of(path):
        whole = bytearray(file.read_bytes())
        for place in draw.integers(0, 8 * len(whole), 60) if whole else []:
            damaged = bytearray(whole)
            damaged[place // 8] ^= 1 << (place % 8)
            file.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=file.name):
                verify(path)
        file.write_bytes(whole)
    verify(path)


def test_the_bits_of_the_manifest_count_too(tmp_path):
    path, _ = saved(tmp_path, {"w": jnp.ones(2)}, record={"rate": 1e-05, "name": "é"})
    file = path / "manifest.json"
    whole = file.read_bytes()
    for place in {*range(0, 8 * len(whole), 31), 8 * whole.index(b"e-05") + 5}:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << (place % 8)
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"manifest\.json"):
            verify(path)


def test_any_missing_truncated_or_surplus_file_is_named(tmp_path, state):
    path, _ = saved(tmp_path, state)
    spare = tmp_path / "spare"
    shutil.copytree(path, spare)
    for file in files_of(path):
        whole = file.read_bytes()
        file.unlink()
        with pytest.raises(CheckpointError, match=f"{file.name}.*got no such file"):
            verify(path)
        if whole:
            file.write_bytes(whole[:-1])
            with pytest.raises(CheckpointError, match=file.name):
                verify(path)
        file.write_bytes(whole)
    surplus = path / "arrays" / "d" / "more"
    surplus.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"d/more as it was saved, got a file that was not"):
        verify(path)
    surplus.unlink()
    verify(path)
    shutil.rmtree(path / "arrays")
    with pytest.raises(CheckpointError, match="no such file"):
        verify(path)


def test_a_step_under_another_name_is_refused(tmp_path, state):
    path, _ = saved(tmp_path, state, 7)
    path.rename(step_path(tmp_path, 8))
    with pytest.raises(CheckpointError, match="got that of step 7"):
        verify(step_path(tmp_path, 8))


def test_bits_that_orbax_restores_are_checked_again(tmp_path, state):
    path, manifest = saved(tmp_path, state)
    changed, _ = saved(tmp_path, {"w": jnp.zeros(2)}, 2)
    shutil.rmtree(path / "arrays")
    shutil.copytree(changed / "arrays", path / "arrays")
    with pytest.raises(CheckpointError, match="to be read by Orbax, got KeyError"):
        restore(path, manifest, state)
    first, sealed = saved(tmp_path, {"w": jnp.ones(2)}, 4)
    shutil.rmtree(first / "arrays")
    shutil.copytree(changed / "arrays", first / "arrays")
    with pytest.raises(CheckpointError, match="to hold the saved bits, got others"):
        restore(first, sealed, {"w": jnp.ones(2)})


def test_the_newest_whole_step_is_used_and_damage_told(tmp_path, state):
    assert newest(tmp_path / "none") is None
    assert newest(tmp_path) is None
    for step in (3, 20, 100):
        saved(tmp_path, state, step)
    (tmp_path / ".tmp-step_00000200-1-ab").mkdir()
    (tmp_path / "step_other").mkdir()
    assert steps.steps(tmp_path) == [3, 20, 100]
    assert newest(tmp_path)[1].step == 100
    (step_path(tmp_path, 100) / "manifest.json").write_text("{}")
    with pytest.warns(PurefitWarning, match=r"step_00000100.*other content; step_00000020 is used"):
        assert newest(tmp_path)[1].step == 20
    shutil.rmtree(step_path(tmp_path, 20) / "arrays")
    with pytest.warns(PurefitWarning) as told:
        assert newest(tmp_path)[1].step == 3
    assert len(told) == 2
    assert all("step_00000003 is used" in str(each.message) for each in told)
    (step_path(tmp_path, 3) / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="no whole step among the 3"):
        newest(tmp_path)


def test_a_whole_step_is_never_overwritten_but_a_damaged_one_is(tmp_path, state):
    path, _ = saved(tmp_path, state)
    before = {file: file.read_bytes() for file in files_of(path)}
    with pytest.raises(SaveError, match="a saved step of that number"):
        saved(tmp_path, {"w": jnp.ones(1)})
    assert {file: file.read_bytes() for file in files_of(path)} == before
    (path / "manifest.json").write_text("")
    saved(tmp_path, {"w": jnp.ones(1)})
    assert os.listdir(tmp_path) == ["step_00000001"]


def test_leftovers_are_cleared_and_steps_are_not(tmp_path, state):
    saved(tmp_path, state)
    (tmp_path / ".tmp-step_00000002-77-aa" / "arrays").mkdir(parents=True)
    clear_leftovers(tmp_path)
    clear_leftovers(tmp_path / "none")
    assert os.listdir(tmp_path) == ["step_00000001"]


def test_prune_keeps_what_it_is_told(tmp_path):
    for step in range(4):
        saved(tmp_path, {"w": jnp.ones(1)}, step)
    prune(tmp_path, {1, 3, 9})
    assert sorted(os.listdir(tmp_path)) == ["step_00000001", "step_00000003"]


def test_saver_keeps_the_last_and_the_best(tmp_path, state):
    scores = [math.nan, 0.9, 0.9, 0.1, None, 0.3, 0.2]
    with Saver(tmp_path, keep_last=2, keep_best=True) as saver:
        assert saver.saved_step is None
        for step, score in enumerate(scores):
            saver.save(step, state, {"score": score}, score)
    assert steps.steps(tmp_path) == [1, 5, 6]
    assert (saver.saved_step, saver.best_step) == (6, 1)
    assert saver.seconds_blocking > 0
    assert saver.seconds_writing > 0
    with Saver(tmp_path, keep_last=1, keep_best=True) as again:
        assert again.best_step == 1
        again.save(7, state, {}, 0.8)
        again.wait()
        assert steps.steps(tmp_path) == [1, 7]
        again.save(8, state, {}, 0.95)
    assert steps.steps(tmp_path) == [8]
    with Saver(tmp_path, keep_last=1, keep_best=False) as plain:
        plain.save(9, state, {}, 0.0)
    assert steps.steps(tmp_path) == [9]


def test_saver_never_prunes_what_it_has_just_saved(tmp_path, state):
    with Saver(tmp_path, keep_last=2, keep_best=False) as saver:
        for step in (8, 9, 5):
            saver.save(step, state, {})
    assert steps.steps(tmp_path) == [5, 8, 9]


def test_saver_skips_a_saved_step_and_replaces_a_damaged_one(tmp_path, state):
    with Saver(tmp_path, 3, False) as saver:
        saver.save(1, state, {"try": 1})
        saver.save(1, state, {"try": 2})
        saver.wait()
        assert verify(step_path(tmp_path, 1)).record == {"try": 1}
        (step_path(tmp_path, 1) / "manifest.json").write_text("{}")
        saver.save(1, state, {"try": 3})
    assert verify(step_path(tmp_path, 1)).record == {"try": 3}


def test_saver_copies_at_once(tmp_path, monkeypatch):
    held = threading.Event()
    honest = checkpoints.write

    def slow(*arguments):
        held.wait(10)
        return honest(*arguments)

    monkeypatch.setattr(checkpoints, "write", slow)
    state, record = {"w": jnp.arange(4.0)}, {"rows": [1]}
    with Saver(tmp_path, 1, False) as saver:
        saver.save(1, state, record)
        record["rows"].append(2)
        jax.jit(lambda s: jax.tree.map(jnp.negative, s), donate_argnums=0)(state)
        held.set()
    path, manifest = newest(tmp_path)
    back = restore(path, manifest, {"w": jax.ShapeDtypeStruct((4,), jnp.float32)})
    np.testing.assert_array_equal(back["w"], np.arange(4.0))
    assert manifest.record == {"rows": [1]}


def test_a_failed_save_is_told_once_and_later_ones_go_on(tmp_path, state, monkeypatch):
    honest = checkpoints.write
    monkeypatch.setattr(checkpoints, "write", lambda *arguments: 1 / 0)
    saver = Saver(tmp_path, 1, False)
    saver.save(1, state, {})
    with pytest.raises(SaveError, match="got ZeroDivisionError"):
        saver.save(2, state, {})
    monkeypatch.setattr(checkpoints, "write", honest)
    saver.save(3, state, {})
    saver.close()
    assert saver.saved_step == 3
    with pytest.raises(TypeError):
        saver.save(4, state, {"no": object()})


def test_records_may_hold_what_json_can_not(tmp_path):
    path, manifest = saved(
        tmp_path, {"w": jnp.ones(1)}, record={"loss": math.inf, "é": [0.1, None]}
    )
    assert manifest.record == {"loss": math.inf, "é": [0.1, None]}
    assert json.loads((path / "manifest.json").read_text())["step"] == 1


def test_saving_and_restoring_are_silent(tmp_path, state, capfd, caplog):
    with caplog.at_level("WARNING"):
        restore(*saved(tmp_path, state), state)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
