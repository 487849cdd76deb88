"""What a saved step consists of, sealed by hashes, and the check that it still does."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from purefit.errors import CheckpointError
from purefit.io.fingerprint import Leaf, hash_leaves

__all__ = [
    "ARRAYS",
    "MANIFEST",
    "FileEntry",
    "LeafEntry",
    "Manifest",
    "describe",
    "read",
    "seal",
    "verify",
]

MANIFEST = "manifest.json"
"""The manifest's name in the folder of a step."""

ARRAYS = "arrays"
"""The name of the folder of the arrays in the folder of a step."""

_FORMAT = 1


class FileEntry(NamedTuple):
    """One file of a step: its path in the step's folder, its bytes and their SHA-256."""

    path: str
    size: int
    sha256: str


class LeafEntry(NamedTuple):
    """One leaf of the saved tree; of a typed key the shape is that of its key data."""

    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Manifest:
    """Everything that is known about a saved step.

    Attributes:
        step: Number of finished training steps.
        score: How good the step is, higher is better; None where nobody said.
        state_sha256: The hash of the saved tree, as `purefit.io.fingerprint.state_hash` gives it.
        leaves: Every leaf of the tree in order.
        files: Every file of the step, save the manifest itself.
        record: What the caller wanted to be kept with it, as JSON data.
    """

    step: int
    score: float | None
    state_sha256: str
    leaves: tuple[LeafEntry, ...]
    files: tuple[FileEntry, ...]
    record: dict[str, Any]


def describe(
    folder: Path, step: int, leaves: Sequence[Leaf], record: Mapping[str, Any], score: float | None
) -> Manifest:
    """Make the manifest of a step whose arrays have just been written to `folder`."""
    return Manifest(
        step=step,
        score=score,
        state_sha256=hash_leaves(leaves),
        leaves=tuple(LeafEntry(leaf.path, leaf.array.shape, leaf.dtype) for leaf in leaves),
        files=tuple(
            FileEntry(name, (folder / name).stat().st_size, _sha256_of(folder / name))
            for name in _files_in(folder)
        ),
        record=dict(record),
    )


def seal(manifest: Manifest) -> str:
    """Write a manifest as JSON, headed by the SHA-256 of its own canonical content.

    Raises:
        TypeError: The record is no JSON data.
    """
    content = json.loads(json.dumps({"format": _FORMAT, **asdict(manifest)}))
    return json.dumps({"sha256": _sha256_of_json(content), **content}, indent=1) + "\n"


def read(folder: Path) -> Manifest:
    """Read the manifest of a step and check it against its own seal; look at no other file.

    Raises:
        CheckpointError: It is missing, damaged, of an unknown format or of another step.
    """
    try:
        text = (folder / MANIFEST).read_bytes().decode("ascii")
        content = json.loads(text)
        sealed = content.pop("sha256")
        # Compared as text too: a flipped bit can spell the same data in another way (1e5, 1E5).
        again = json.dumps({"sha256": sealed, **content}, indent=1) + "\n"
        whole = sealed == _sha256_of_json(content) and again == text
    except OSError as error:
        raise _damaged(folder, MANIFEST, _unreadable(error)) from None
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise _damaged(folder, MANIFEST, "other content") from None
    if not whole:
        raise _damaged(folder, MANIFEST, "other content")
    if content.pop("format") != _FORMAT:
        raise CheckpointError(
            f"Expected {folder / MANIFEST} in format {_FORMAT}, got another one; "
            "use the version of purefit that wrote it."
        )
    leaves = tuple(LeafEntry(path, tuple(shape), dtype) for path, shape, dtype in content["leaves"])
    files = tuple(FileEntry(*entry) for entry in content["files"])
    manifest = Manifest(**{**content, "leaves": leaves, "files": files})
    if folder.name != f"step_{manifest.step:08d}":
        raise _damaged(folder, MANIFEST, f"that of step {manifest.step}")
    return manifest


def verify(folder: Path) -> Manifest:
    """Hash every file of a step again.

    Raises:
        CheckpointError: Names the first file that is damaged, truncated, missing or too many.
    """
    manifest = read(folder)
    saved = {entry.path: entry for entry in manifest.files}
    found = set(_files_in(folder))
    for name in sorted(found | set(saved)):
        if name not in saved:
            raise _damaged(folder, name, "a file that was not there when it was saved")
        damage = _damage(folder / name, saved[name]) if name in found else "no such file"
        if damage:
            raise _damaged(folder, name, damage)
    return manifest


def _damage(file: Path, saved: FileEntry) -> str | None:
    try:
        size = file.stat().st_size
        if size != saved.size:
            return f"{size} bytes instead of {saved.size}"
        return None if _sha256_of(file) == saved.sha256 else "other content"
    except OSError as error:
        return _unreadable(error)


def _unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "no such file"
    return f"an error on reading ({error.strerror or error})"


def _damaged(folder: Path, name: str, damage: str) -> CheckpointError:
    return CheckpointError(
        f"Expected {folder / name} as it was saved, got {damage}; use another saved step."
    )


def _files_in(folder: Path) -> list[str]:
    """Give the relative paths of all files, sorted; the manifest is left out."""
    names = [
        Path(place, name).relative_to(folder).as_posix()
        for place, _, files in os.walk(folder)
        for name in files
    ]
    return sorted(name for name in names if name != MANIFEST)


def _sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sha256_of_json(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
