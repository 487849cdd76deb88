"""Files that survive a power cut: written aside, synced, then renamed."""

import errno
import os
import re
import shutil
from pathlib import Path

__all__ = ["ensure_space", "reason", "sync", "sync_tree", "write_text"]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_text(path: Path, text: str) -> None:
    """Write a file so that at any moment either the old or the new content is there, whole."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Force a file or folder onto the disk (folders only where the system can)."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Force every file and folder under `root`, and `root` itself, onto the disk."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))


def ensure_space(folder: Path, size: int) -> None:
    """Refuse early where `size` bytes do not fit: by trial, since reported free space can be wrong.

    Raises:
        OSError: The disk or the quota is full.
    """
    if shutil.disk_usage(folder).free >= size or not hasattr(os, "posix_fallocate"):
        return
    trial = folder / ".tmp-trial"
    try:
        with trial.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise
    finally:
        trial.unlink(missing_ok=True)


def reason(error: Exception) -> str:
    """Say in a few words what went wrong, also where a library wrapped the system's error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    by_system = re.search(r"([^:]+) \[os_error_code=", text)
    return by_system[1].strip() if by_system else f"{type(error).__name__}: {text[:200]}"
