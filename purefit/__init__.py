"""purefit: a training run is a pure function.

    import purefit as pf

    digits = pf.datasets.mnist()
    run = pf.fit(pf.mlp(256, 128), digits.train, valid=digits.test, epochs=10, seed=0)
    run.history["test_accuracy"][-1]

Names are loaded when they are first used, so that importing purefit alone loads no framework.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from purefit.core.losses import cross_entropy, mean_squared_error
    from purefit.core.metrics import Mean, accuracy
    from purefit.core.run import make_run
    from purefit.core.settings import Hyper, Plan
    from purefit.core.state import TrainState
    from purefit.core.step import make_step
    from purefit.core.types import Data, Model, Variables
    from purefit.errors import (
        CheckpointError,
        DataError,
        InputError,
        Interrupted,
        MissingExtraError,
        ModelError,
        NonFiniteError,
        PurefitError,
        PurefitWarning,
        RunFolderError,
        SaveError,
        SettingsError,
    )
    from purefit.io import datasets
    from purefit.io.datasets import Dataset
    from purefit.io.fingerprint import state_hash
    from purefit.loop.fit import fit
    from purefit.loop.inference import evaluate, load, predict
    from purefit.loop.record import Run, Timings
    from purefit.loop.settings import Saving
    from purefit.models.cnn import cnn
    from purefit.models.doors import as_model
    from purefit.models.equinox import from_equinox
    from purefit.models.functions import from_functions
    from purefit.models.linen import from_linen
    from purefit.models.mlp import mlp
    from purefit.models.nnx import from_nnx

_HOMES = {
    "purefit.core.losses": ("cross_entropy", "mean_squared_error"),
    "purefit.core.metrics": ("Mean", "accuracy"),
    "purefit.core.run": ("make_run",),
    "purefit.core.settings": ("Hyper", "Plan"),
    "purefit.core.state": ("TrainState",),
    "purefit.core.step": ("make_step",),
    "purefit.core.types": ("Data", "Model", "Variables"),
    "purefit.errors": (
        "CheckpointError",
        "DataError",
        "InputError",
        "Interrupted",
        "MissingExtraError",
        "ModelError",
        "NonFiniteError",
        "PurefitError",
        "PurefitWarning",
        "RunFolderError",
        "SaveError",
        "SettingsError",
    ),
    "purefit.io": ("datasets",),
    "purefit.io.datasets": ("Dataset",),
    "purefit.io.fingerprint": ("state_hash",),
    "purefit.loop.fit": ("fit",),
    "purefit.loop.inference": ("evaluate", "load", "predict"),
    "purefit.loop.record": ("Run", "Timings"),
    "purefit.loop.settings": ("Saving",),
    "purefit.models.cnn": ("cnn",),
    "purefit.models.doors": ("as_model",),
    "purefit.models.equinox": ("from_equinox",),
    "purefit.models.functions": ("from_functions",),
    "purefit.models.linen": ("from_linen",),
    "purefit.models.mlp": ("mlp",),
    "purefit.models.nnx": ("from_nnx",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022  (in the order of use)
    "fit",
    "evaluate",
    "predict",
    "load",
    "make_run",
    "make_step",
    "mlp",
    "cnn",
    "as_model",
    "from_functions",
    "from_linen",
    "from_nnx",
    "from_equinox",
    "Hyper",
    "Plan",
    "Saving",
    "Data",
    "Dataset",
    "datasets",
    "Model",
    "Variables",
    "TrainState",
    "Run",
    "Timings",
    "Mean",
    "cross_entropy",
    "mean_squared_error",
    "accuracy",
    "state_hash",
    "PurefitError",
    "InputError",
    "DataError",
    "SettingsError",
    "ModelError",
    "MissingExtraError",
    "RunFolderError",
    "CheckpointError",
    "NonFiniteError",
    "SaveError",
    "Interrupted",
    "PurefitWarning",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'purefit' has no attribute {name!r}")
    home = _HOME_OF[name]
    if name == "datasets":  # a module, and not a name in one
        value: Any = import_module(f"{home}.{name}")
    else:
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
