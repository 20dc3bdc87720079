"""No two modules of the package import each other, including imports for types; import-linter orders the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import sqlanon

ROOT = Path(sqlanon.__file__).parent


@pytest.mark.thorough
def test_no_modules_import_each_other() -> None:
    try:
        TopologicalSorter(graph(ROOT)).prepare()
    except CycleError as error:
        raise AssertionError(" < ".join(error.args[1])) from None


def test_a_cycle_for_types_alone_is_found(tmp_path: Path) -> None:
    root = tmp_path / "package"
    root.mkdir()
    (root / "one.py").write_text("from package import two", "utf-8")
    (root / "two.py").write_text("if TYPE_CHECKING:\n    from package.one import One", "utf-8")
    assert graph(root) == {"package.one": {"package.two"}, "package.two": {"package.one"}}


def graph(root: Path) -> Mapping[str, set[str]]:
    """The modules that each module imports, anywhere in it."""
    paths = {name_of(path, root): path for path in root.rglob("*.py")}
    return {name: set(imported_modules(ast.parse(path.read_text("utf-8")), paths)) for name, path in paths.items()}


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.Module, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and not node.level, "imports name the whole path"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & modules.keys()
            if node.module in modules and not names <= modules.keys():
                yield node.module
