"""What breaks from outside while a step is written: full disks, limits, kills, early exits."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from purefit.errors import SaveError
from purefit.io import disk, steps
from purefit.io.checkpoints import Saver, clear_leftovers, newest, step_path, verify, write
from purefit.io.fingerprint import host_leaves

ROOT = Path(__file__).parents[2]

COMMON = """
import sys, resource
from pathlib import Path
import numpy as np
from purefit.errors import SaveError
from purefit.io.checkpoints import Saver, write, newest
from purefit.io.fingerprint import host_leaves
root = Path(sys.argv[1])
tree = {f"w{i}": np.random.default_rng(i).normal(size=(100, 100)) for i in range(6)}
"""

KILLED = (
    COMMON
    + """
import os, signal, time
for moment in sys.argv[2:]:
    child = os.fork()  # JAX has not started yet: it is imported once and starts in each child
    if not child:
        with Saver(root / moment, keep_last=3, keep_best=True) as saver:
            for step in range(10**6):
                tree["step"] = np.int64(step)
                saver.save(step, tree, {"step": step}, float(step % 7))
    while not (root / moment / "step_00000000").exists():
        time.sleep(0.001)
    time.sleep(float(moment))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
)

LIMITED = (
    COMMON
    + """
write(root, 1, host_leaves({"w": np.ones(3)}), {})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write(root, 2, host_leaves({"w": np.random.default_rng(0).normal(size=10**5)}), {})
except SaveError as error:
    print(error)
print(newest(root)[1].step)
"""
)

EXITING = (
    COMMON
    + """
saver = Saver(root, keep_last=9, keep_best=False)
big = {f"w{i}": np.random.default_rng(i).normal(size=(500, 1000)) for i in range(6)}
for step in (1, 2):
    saver.save(step, big, {})
"""
)


def python(script, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 200 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if os.name != "posix" or not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("only root may mount")
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def tree(size, seed=0):
    return {"w": np.random.default_rng(seed).normal(size=size)}


def test_a_full_disk_leaves_the_earlier_steps(small_disk, capfd):
    root = small_disk / "checkpoints"
    write(root, 1, host_leaves(tree(5_000)), {})
    with pytest.raises(SaveError, match=r"step 2 in .*, got No space left on device; make room"):
        write(root, 2, host_leaves(tree(30_000)), {})
    assert os.listdir(root) == ["step_00000001"]
    assert newest(root)[1].step == 1
    write(root, 3, host_leaves(tree(5_000)), {})
    assert newest(root)[1].step == 3
    assert capfd.readouterr() == ("", "")


def test_room_is_tried_where_little_is_reported(small_disk, tmp_path, monkeypatch):
    with pytest.raises(OSError, match="No space left on device"):
        disk.ensure_space(small_disk, 300_000)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    disk.ensure_space(tmp_path, 300_000)
    assert os.listdir(small_disk) == []
    assert os.listdir(tmp_path) == ["disk"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_fills_up_during_the_write(small_disk, monkeypatch, caplog):
    monkeypatch.setattr(steps, "ensure_space", lambda folder, size: None)
    root = small_disk / "checkpoints"
    write(root, 1, host_leaves(tree(5_000)), {})
    with pytest.raises(SaveError, match="got No space left on device; make room"):
        write(root, 2, host_leaves(tree(30_000)), {})
    assert os.listdir(root) == ["step_00000001"]
    verify(step_path(root, 1))
    assert not [record for record in caplog.records if record.name == "absl"]


def test_a_full_disk_in_the_background_is_raised_by_the_next_call(small_disk):
    root = small_disk / "checkpoints"
    saver = Saver(root, keep_last=1, keep_best=True)
    saver.save(1, tree(5_000), {}, 0.5)
    saver.save(2, tree(30_000), {}, 0.6)
    with pytest.raises(SaveError, match=r"step 2 .*No space left on device"):
        saver.wait()
    assert (saver.saved_step, saver.best_step) == (1, 1)
    assert steps.steps(root) == [1]
    saver.save(3, tree(4_000), {})
    saver.close()
    assert saver.saved_step == 3


def test_a_file_size_limit_leaves_the_earlier_steps(tmp_path):
    job = python(LIMITED, tmp_path, stderr=subprocess.DEVNULL)
    told, _ = job.communicate(timeout=60)
    lines = told.splitlines()
    assert lines[0].startswith(f"Expected to save step 2 in {tmp_path}, got File too large;")
    assert lines[1:] == ["1"]
    assert os.listdir(tmp_path) == ["step_00000001"]


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(SaveError, match="got Permission denied"):
        write(tmp_path, 1, host_leaves(tree(3)), {})


def test_a_place_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="got Not a directory"):
        write(tmp_path / "file", 1, host_leaves({"w": jnp.ones(3)}), {})


def test_a_normal_exit_finishes_the_write(tmp_path):
    job = python(EXITING, tmp_path, stderr=subprocess.PIPE)
    _, errors = job.communicate(timeout=60)
    assert (job.returncode, errors) == (0, "")
    assert [verify(step_path(tmp_path, step)).step for step in (1, 2)] == [1, 2]
    assert sorted(os.listdir(tmp_path)) == ["step_00000001", "step_00000002"]


@pytest.mark.slow
def test_kills_at_any_moment_leave_only_whole_steps(tmp_path):
    draw = random.Random(0)
    moments = [f"{draw.uniform(0, 0.5):.4f}" for _ in range(10)]
    job = python(KILLED, tmp_path, *moments, stderr=subprocess.DEVNULL)
    job.communicate(timeout=120)
    assert job.returncode == 0
    cut = 0
    for moment in moments:
        root = tmp_path / moment
        seen = steps.steps(root)
        for step in seen:
            assert verify(step_path(root, step)).record == {"step": step}
        assert seen
        cut += any(path.name.startswith(".tmp-") for path in root.iterdir())
        clear_leftovers(root)
        assert all(path.name.startswith("step_") for path in root.iterdir())
    assert cut, "no kill hit a write"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_everything_is_on_the_disk_before_the_step_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(
        disk.os, "fsync", lambda fd: events.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd)
    )
    monkeypatch.setattr(
        Path, "rename", lambda path, to: events.append(("rename", str(path))) or rename(path, to)
    )
    final = write(tmp_path, 1, host_leaves(tree(10)), {})
    at = next(i for i, event in enumerate(events) if event[0] == "rename")
    making = events[at][1]
    parts = [making, *(f"{making}/{path.relative_to(final)}" for path in final.rglob("*"))]
    assert set(parts) <= set(events[:at])
    assert str(tmp_path) in events[at:]
