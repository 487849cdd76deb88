"""Settings as people give them: by keyword, sorted into `Hyper`, `Plan` and `Saving`."""

import numbers
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from purefit.core.settings import Hyper, Plan, check_hyper, check_plan, is_finite, shown
from purefit.errors import SettingsError

__all__ = ["Saving", "Settings", "as_path", "check_saving", "check_seed", "sort_settings"]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """When a run with a folder is saved, and what is kept.

    The last step of a run is always saved.

    Attributes:
        save_every_epochs: Save at the end of every so many epochs; None for never.
        save_every_steps: Save after every so many steps, counted from the start of the run.
        save_every_seconds: Save when so many seconds have gone by since the last save.
        keep_last: How many of the newest steps are kept.
        keep_best: Keep the best epoch's step too: by test accuracy, else by test loss, else by
            what there is of the training data.
    """

    save_every_epochs: int | None = 1
    save_every_steps: int | None = None
    save_every_seconds: float | None = None
    keep_last: int = 2
    keep_best: bool = True


class Settings(TypedDict, total=False):
    """Every setting that `pf.fit` takes by keyword; `Hyper`, `Plan` and `Saving` explain them."""

    learning_rate: float
    weight_decay: float
    momentum: float
    b1: float
    b2: float
    eps: float
    clip_norm: float
    dropout: float
    warmup: float
    final_scale: float
    epochs: int
    batch_size: int
    optimizer: Any
    schedule: str
    loss: str | Callable[..., Any]
    metrics: tuple[str | Callable[..., Any], ...]
    drop_remainder: bool
    shuffle: bool
    scale_bytes: bool
    eval_batch_size: int
    mode: str
    unroll: int
    save_every_epochs: int | None
    save_every_steps: int | None
    save_every_seconds: float | None
    keep_last: int
    keep_best: bool


def sort_settings(settings: Mapping[str, Any]) -> tuple[Hyper, Plan, Saving]:
    """Sort settings by keyword into the three records, and check each value.

    Raises:
        SettingsError: A name is unknown, or a value out of its range.
    """
    known = {field.name: kind for kind in (Hyper, Plan, Saving) for field in fields(kind)}
    for name in settings:
        if name not in known:
            raise SettingsError(
                f"Expected a setting that exists, got {name!r}; "
                f"use one of: {', '.join(sorted(known))}."
            )
    parts: dict[type, dict[str, Any]] = {Hyper: {}, Plan: {}, Saving: {}}
    for name, value in settings.items():
        parts[known[name]][name] = value
    if isinstance(parts[Plan].get("metrics"), list):
        parts[Plan]["metrics"] = tuple(parts[Plan]["metrics"])
    hyper, plan, saving = Hyper(**parts[Hyper]), Plan(**parts[Plan]), Saving(**parts[Saving])
    check_hyper(hyper)
    check_plan(plan)
    check_saving(saving)
    return hyper, plan, saving


def check_saving(saving: Saving) -> None:
    """Refuse values that are out of range.

    Raises:
        SettingsError: Names the setting, its rule and its value.
    """
    for name in ("save_every_epochs", "save_every_steps", "keep_last"):
        value = getattr(saving, name)
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not (value is None and name != "keep_last") and (not whole or value < 1):
            raise SettingsError(
                f"Expected {name} to be a whole number of at least 1, got {shown(value)}; "
                "change it."
            )
    seconds = saving.save_every_seconds
    if seconds is not None and not (is_finite(seconds) and seconds > 0):
        raise SettingsError(
            f"Expected save_every_seconds to be a positive number, got {shown(seconds)}; change it."
        )
    if not isinstance(saving.keep_best, bool):
        raise SettingsError(
            f"Expected keep_best to be true or false, got {shown(saving.keep_best)}; change it."
        )


def check_seed(seed: Any) -> int:
    """Refuse a seed that a key cannot hold.

    Raises:
        SettingsError: It is no whole number from 0 to 2**32 - 1.
    """
    whole = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**32:
        raise SettingsError(
            f"Expected seed to be a whole number from 0 to 2**32 - 1, got {shown(seed)}; change it."
        )
    return int(seed)


def as_path(given: Any, name: str) -> Path:
    """Make a path of what was given as one.

    Raises:
        SettingsError: It is none.
    """
    if isinstance(given, str | os.PathLike) and isinstance(os.fspath(given), str):
        text = os.fspath(given)
        if text and "\0" not in text:
            return Path(text)
    raise SettingsError(
        f"Expected {name} to be the path of a folder, got {shown(given)}; give it as text or a "
        "pathlib.Path."
    )
