"""Saved steps of a run: written whole or not at all, verified before they are used.

A step is a folder `step_00000469` with Orbax's arrays and a sealed manifest. It is made under
another name, synced to the disk and renamed last, so that a name that can be seen is a step that
was written to its end.
"""

import errno
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from purefit.errors import CheckpointError, PurefitWarning, SaveError
from purefit.io.arrays import write_arrays
from purefit.io.disk import ensure_space, reason, sync, sync_tree
from purefit.io.fingerprint import Leaf
from purefit.io.manifest import ARRAYS, MANIFEST, Manifest, describe, seal, verify

__all__ = ["clear_leftovers", "is_whole", "newest", "prune", "step_path", "steps", "write"]

_TEMPORARY = ".tmp-"
_SPARE_BYTES = 1 << 16


def step_path(root: Path, step: int) -> Path:
    """Give the folder of a step."""
    return root / f"step_{step:08d}"


def write(
    root: Path,
    step: int,
    leaves: Sequence[Leaf],
    record: Mapping[str, Any],
    score: float | None = None,
) -> Path:
    """Save a step; when this returns, it is on the disk.

    A damaged step of the same number is replaced, a whole one never.

    Args:
        root: The folder of all steps; made if it is missing.
        step: Number of finished training steps.
        leaves: The tree on the host, as `purefit.io.fingerprint.host_leaves` gives it.
        record: JSON data to keep with it.
        score: How good the step is, higher is better.

    Returns:
        The folder of the step.

    Raises:
        SaveError: Something went wrong; the steps saved before are untouched.
    """
    final = step_path(root, step)
    making = _aside(final)
    try:
        if is_whole(final):
            raise FileExistsError(errno.EEXIST, "a saved step of that number")
        making.mkdir(parents=True)
        ensure_space(making, sum(leaf.array.nbytes for leaf in leaves) + _SPARE_BYTES)
        write_arrays(making / ARRAYS, leaves)
        manifest = describe(making, step, leaves, record, score)
        (making / MANIFEST).write_text(seal(manifest), encoding="ascii", newline="\n")
        sync_tree(making)
        if final.exists():
            _remove(final)
        making.rename(final)
        sync(root)
    except BaseException as error:
        shutil.rmtree(making, ignore_errors=True)
        if isinstance(error, Exception):
            raise SaveError(
                f"Expected to save step {step} in {root}, got {reason(error)}; make room there "
                "or choose another out= (the steps saved before are untouched)."
            ) from error
        raise
    return final


def steps(root: Path) -> list[int]:
    """List the saved steps in rising order, whole or damaged; half-written ones are none."""
    if not root.is_dir():
        return []
    names = (re.fullmatch(r"step_(\d{8,})", path.name) for path in root.iterdir())
    return sorted(int(name[1]) for name in names if name)


def is_whole(path: Path) -> bool:
    """Tell whether a step is there and verifies."""
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def newest(root: Path) -> tuple[Path, Manifest] | None:
    """Find the newest step that verifies; of each damaged newer one a `PurefitWarning` tells.

    Returns:
        The step's folder and manifest; None where nothing was saved.

    Raises:
        CheckpointError: There are steps, but all of them are damaged.
    """
    damaged: list[str] = []
    for step in reversed(steps(root)):
        path = step_path(root, step)
        try:
            manifest = verify(path)
        except CheckpointError as error:
            damaged.append(str(error).rpartition(";")[0])
            continue
        for fault in damaged:
            warnings.warn(f"{fault}; {path.name} is used instead.", PurefitWarning, stacklevel=2)
        return path, manifest
    if damaged:
        raise CheckpointError(
            f"{damaged[0]}, and no whole step among the {len(damaged)} in {root}; "
            "start the run again, with another out=."
        )
    return None


def clear_leftovers(root: Path) -> None:
    """Remove what killed writers left behind; only for the one process that owns the folder."""
    if root.is_dir():
        for path in root.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)


def prune(root: Path, keep: Set[int]) -> None:
    """Delete all steps but those in `keep`; each vanishes at once, by a rename.

    Raises:
        SaveError: The system refused.
    """
    for step in steps(root):
        if step not in keep:
            try:
                _remove(step_path(root, step))
            except OSError as error:
                raise SaveError(
                    f"Expected to delete the old step {step} in {root}, got {reason(error)}; "
                    "see to the rights of that folder."
                ) from error


def _aside(path: Path) -> Path:
    return path.with_name(f"{_TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")


def _remove(path: Path) -> None:
    aside = _aside(path)
    path.rename(aside)
    shutil.rmtree(aside)
