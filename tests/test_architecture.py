"""The house is as `docs/architecture.md` draws it."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = re.search(
    r"## Rooms\n\n```text\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL
)[1]


def drawn():
    """List the modules in the drawing, by their rooms."""
    found, room = set(), ""
    for line in ROOMS.splitlines():
        inner = re.match(r"  (\w+)/ ", line)
        if inner:
            room = inner[1] + "/"
        elif line.startswith("  ") and not line.startswith("    "):
            room = ""
        names = re.findall(r"(?<![\w/])(\w+)\.py", line)
        found |= {f"{room}{name}.py" for name in names}
    return found


def test_every_module_is_in_the_drawing_and_nothing_else():
    package = ROOT / "purefit"
    built = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert drawn() - {"__init__.py"} == built


def test_no_file_is_long_and_no_function_is_a_maze():
    import ast

    for path in [*(ROOT / "purefit").rglob("*.py"), *(ROOT / "examples").glob("*.py")]:
        source = path.read_text()
        assert len(source.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                begin = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
                assert node.end_lineno - begin <= 50, f"{path}: {node.name}"
