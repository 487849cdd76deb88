"""The public surface: pinned, documented, and quick to import."""

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import purefit as pf
from purefit.cli.options import Evaluate, Predict, Resume, Train, Verify
from purefit.core.settings import Hyper, Plan
from purefit.loop.settings import Saving, Settings

NAMES = {
    *("fit", "evaluate", "predict", "load", "make_run", "make_step"),
    *("mlp", "cnn", "as_model", "from_functions", "from_linen", "from_nnx", "from_equinox"),
    *("Hyper", "Plan", "Saving", "Data", "Dataset", "datasets", "Model", "Variables"),
    *("TrainState", "Run", "Timings", "Mean"),
    *("cross_entropy", "mean_squared_error", "accuracy", "state_hash"),
    *("PurefitError", "InputError", "DataError", "SettingsError", "ModelError"),
    *("MissingExtraError", "RunFolderError", "CheckpointError", "NonFiniteError"),
    *("SaveError", "Interrupted", "PurefitWarning", "__version__"),
}


def test_the_surface_is_pinned():
    assert set(pf.__all__) == NAMES
    assert len(pf.__all__) == len(NAMES)
    assert set(dir(pf)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_public_name_has_a_docstring(name):
    value = getattr(pf, name)
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and inspect.isfunction(member):
                assert inspect.getdoc(member), f"{name}.{attribute}"


def test_the_type_checker_sees_the_same_names():
    source = Path(pf.__file__).read_text()
    checked = source.split("if TYPE_CHECKING:")[1].split("_HOMES")[0]
    for name in NAMES - {"__version__"}:
        assert f"{name}\n" in checked or f"{name}," in checked, name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pf.nothing  # noqa: B018


def test_pf_fit_stays_a_function_whatever_is_imported():
    import purefit.loop.fit

    assert inspect.isfunction(pf.fit)
    assert inspect.ismodule(purefit.loop.fit) or inspect.isfunction(pf.fit)


@pytest.mark.parametrize("code", ["import purefit", "import purefit.cli.options"])
def test_importing_loads_no_framework(code):
    heavy = "[m for m in ('jax', 'numpy', 'optax', 'orbax', 'flax', 'equinox') if m in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_every_setting_is_a_keyword_and_a_flag_with_the_same_default():
    flags = {field.name: field for field in dataclasses.fields(Train)}
    for record in (Hyper, Plan, Saving):
        for field in dataclasses.fields(record):
            assert field.name in Settings.__annotations__
            if field.name != "metrics":
                assert flags[field.name].default == field.default, field.name


@pytest.mark.parametrize("options", [Train, Resume, Evaluate, Predict, Verify])
def test_every_flag_has_help(options):
    source = inspect.getsource(options)
    for field in dataclasses.fields(options):
        after = source.split(f"\n    {field.name}:")[1].split("\n    ")[1]
        assert after.startswith('"""'), field.name
