"""Every snippet of the README and the docs runs."""

import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

import purefit as pf
from purefit.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def snippets(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def ids(page):
    return page.name


@pytest.fixture(autouse=True)
def lenient(tmp_path, monkeypatch):
    """Snippets are written for users, who have JAX's ordinary promotion, and in any folder."""
    monkeypatch.chdir(tmp_path)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p, "python")], ids=ids)
def test_python_snippets_run_in_order(page, capsys):
    names = {"__name__": "snippets"}
    for snippet in snippets(page, "python"):
        exec(compile(snippet, str(page), "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p, "console")], ids=ids)
def test_commands_run_in_order(page, tmp_path, capsys):
    digits = pf.datasets.mnist()
    Image.fromarray(np.asarray(digits.test.x[0])).save(tmp_path / "digit.png")
    for line in "\n".join(snippets(page, "console")).splitlines():
        assert line.startswith("$ purefit "), line
        runs = sorted((tmp_path / "runs").glob("*")) if (tmp_path / "runs").exists() else []
        words = shlex.split(line.removeprefix("$ purefit "))
        words = [re.sub("^RUN", str(runs[0]) if runs else "RUN", word) for word in words]
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
        assert code in (0, None), (line, capsys.readouterr().err)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_figures_are_filled_in(page):
    assert not re.search(r"^(FIGURES|MODES)$|: (PROGRESS|SAVING)$", page.read_text(), re.MULTILINE)
