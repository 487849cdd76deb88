"""A run's folder: settings, environment, history and checkpoints, owned by one process."""

import json
import os
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any, final

import filelock
import jax
import tomli_w

from purefit.errors import RunFolderError, SaveError
from purefit.io.disk import sync, write_text

__all__ = ["RunFolder", "environment", "name_run"]

_SETTINGS = "run.toml"
_ENVIRONMENT = "environment.json"
_HISTORY = "metrics.jsonl"
_CHECKPOINTS = "checkpoints"
_LOCK = ".lock"
_OWNER = ".owner"
_PACKAGES = ("jax", "jaxlib", "optax", "orbax-checkpoint", "numpy")


def name_run(root: Path, data: str, model: str, now: datetime) -> Path:
    """Give a path under `root` that does not exist yet, such as `runs/mnist-mlp-20261201-152000`.

    Args:
        root: The folder of all runs.
        data: Name of the data set.
        model: Name of the model.
        now: The time that goes into the name.
    """
    words = re.sub(r"[^A-Za-z0-9._]+", "-", f"{data}-{model}").strip("-.")
    first = root / f"{words}-{now:%Y%m%d-%H%M%S}"
    later = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return first if not first.exists() else next(path for path in later if not path.exists())


def environment() -> dict[str, Any]:
    """Describe what this process computes with: versions, backend and devices, as JSON data."""
    return {
        "purefit": import_module("purefit").__version__,
        **{name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "device_kinds": sorted({device.device_kind for device in jax.devices()}),
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        "cores": _cores(),
    }


def _cores() -> int:
    """Count the cores that this process may use: convolutions on the CPU are split among them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@final
class RunFolder:
    """The folder of one run; make one with `create` or `open`, and close it (or use `with`).

    Attributes:
        path: The folder.
        checkpoints: The folder of the saved steps.
    """

    def __init__(self, path: Path, lock: filelock.BaseFileLock | None) -> None:
        self.path = path
        self.checkpoints = path / _CHECKPOINTS
        self._lock = lock

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> "RunFolder":
        """Make the folder of a new run, with its parents, and take possession of it.

        Raises:
            RunFolderError: There is something at `path` already, it cannot be made, or another
                process has just made it.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            taken = any(path.iterdir())
        except (FileExistsError, NotADirectoryError):
            taken = True
        except OSError as error:
            raise _cannot_make(path, error) from error
        if taken:
            raise RunFolderError(
                f"Expected {path} to be new or an empty folder, got something that is already "
                "there; choose another out=, or resume the run that it holds."
            )
        folder = cls(path, _take(path))
        try:
            folder.checkpoints.mkdir(exist_ok=True)
            sync(path.parent)
        except OSError as error:
            folder.close()
            raise _cannot_make(path, error) from error
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str], lock: bool = True) -> "RunFolder":
        """Open the folder of a run that was started before.

        Args:
            path: The folder.
            lock: False only reads, whoever owns it.

        Raises:
            RunFolderError: It is no run's folder, or another process is using it.
        """
        path = Path(path)
        for missing in (path, path / _SETTINGS):
            if not missing.exists():
                raise RunFolderError(
                    f"Expected {path} to be the folder of a run, got no {missing}; "
                    "give the folder that holds run.toml."
                )
        return cls(path, _take(path) if lock else None)

    def close(self) -> None:
        """Give the folder up; it may be opened by others from now on."""
        if self._lock is not None:
            (self.path / _OWNER).unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write `run.toml`, whole or not at all; TOML knows no None, so leave such keys out.

        Raises:
            SaveError: The disk refused.
        """
        self._write(_SETTINGS, tomli_w.dumps(settings))

    def read_settings(self) -> dict[str, Any]:
        """Read `run.toml`.

        Raises:
            RunFolderError: It is missing or no TOML; the message says in which line.
        """
        file = self.path / _SETTINGS
        try:
            raw = file.read_bytes()
            return tomllib.loads(raw.decode("utf-8").replace("\r\n", "\n"))
        except OSError as error:
            fault = error.strerror or str(error)
        except UnicodeDecodeError as error:
            fault = f"bytes that are no UTF-8 (at line {raw[: error.start].count(10) + 1})"
        except tomllib.TOMLDecodeError as error:
            fault = str(error)
        raise RunFolderError(
            f"Expected {file} to hold the settings as TOML, got: {fault}; "
            "repair that line, or start the run again with another out=."
        )

    def write_environment(self) -> None:
        """Write what `environment` tells to `environment.json`.

        Raises:
            SaveError: The disk refused.
        """
        self._write(_ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")

    def write_history(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write `metrics.jsonl` anew, one line for each row, whole or not at all.

        Raises:
            SaveError: The disk refused.
        """
        self._write(_HISTORY, "".join(_line(row) for row in rows))

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl`.

        Raises:
            SaveError: The disk refused.
        """
        file = self.path / _HISTORY
        try:
            with file.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write(_line(row))
        except OSError as error:
            raise _cannot_write(file, error) from error

    def _write(self, name: str, text: str) -> None:
        try:
            write_text(self.path / name, text)
        except OSError as error:
            raise _cannot_write(self.path / name, error) from error


def _take(path: Path) -> filelock.BaseFileLock:
    """Lock the folder for this process; the system itself unlocks it when the process dies."""
    lock = filelock.FileLock(path / _LOCK, thread_local=False)
    owner = path / _OWNER
    try:
        lock.acquire(timeout=0)
        owner.write_text(f"{os.getpid()}\n")
    except filelock.Timeout:
        raise RunFolderError(
            f"Expected {path} to be free, got a folder that {_user_of(owner)} is using; "
            "wait until it has ended, or choose another folder."
        ) from None
    except OSError as error:
        lock.release()
        raise RunFolderError(
            f"Expected to lock {path}, got {error.strerror or error}; see to the rights and the "
            "room of that folder."
        ) from error
    return lock


def _user_of(owner: Path) -> str:
    try:
        number = int(owner.read_text())
    except (OSError, ValueError):
        return "another process"
    return "this process" if number == os.getpid() else f"another process (pid {number})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, separators=(", ", ": ")) + "\n"


def _cannot_make(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"Expected to make the folder {path}, got {error.strerror or error}; choose another out=."
    )


def _cannot_write(file: Path, error: OSError) -> SaveError:
    return SaveError(
        f"Expected to write {file}, got {error.strerror or error}; make room there and resume."
    )
