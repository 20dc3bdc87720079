"""Assumptions of the tests: names that they set exist, and oracles import nothing of the package."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support import thresholds
from support.commands import cli

TESTS = Path(__file__).parent
FILES = sorted(path for path in TESTS.rglob("*.py") if path.name != Path(__file__).name)


def resolves(dotted: str) -> bool:
    """Whether a dotted path names a module, or something in a module."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("sqlanon"):
                return True  # an extra is not installed
            continue
        for name in parts[count:]:
            if not hasattr(target, name):
                return False
            target = getattr(target, name)
        return True
    return False


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a file gives to modules and to their contents that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (name.asname or name.name.partition(".")[0], name.name if name.asname else "") for name in node.names
            )
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def dotted_path(node: ast.expr, names: dict[str, str]) -> str | None:
    """The dotted path of an expression, if it is one."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := dotted_path(node.value, names)) is not None:
        return f"{owner}.{node.attr}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def paths(tree: ast.Module) -> Iterator[str]:
    """Names set by a file: ``setattr(owner, "name", ...)``, and pairs of a module and a name in it."""
    names = {name: path or name for name, path in imported_names(tree)}
    for node in tree.body:  # NAME, OTHER = "sqlanon.one", "sqlanon.other"
        if isinstance(node, ast.Assign):
            (target,), value = node.targets, node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]
            names |= {
                name.id: alias.value
                for name, alias in pairs
                if isinstance(name, ast.Name) and isinstance(alias, ast.Constant) and isinstance(alias.value, str)
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            arguments = node.args[:2]
        elif isinstance(node, ast.Tuple) and len(node.elts) > 1:
            arguments = node.elts[:2]
        else:
            continue
        owner, name = (dotted_path(argument, names) for argument in arguments)
        if owner is None or not owner.startswith("sqlanon."):
            continue
        second = arguments[1]
        constant = isinstance(second, ast.Constant) and isinstance(second.value, str)
        if isinstance(node, ast.Call) and not constant:
            yield owner
        elif constant and name and not name.startswith("sqlanon") and all(map(str.isidentifier, name.split("."))):
            yield f"{owner}.{name}"


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_names_that_tests_set_exist() -> None:
    names = {path: file for file in FILES for path in paths(tree_of(file))}
    constants = {path for path in vars(thresholds).values() if str(path).startswith("sqlanon.")}
    assert len(names) > 40  # that they are found at all
    assert {path: file for path, file in names.items() if not resolves(path)} == {}
    assert [path for path in constants if not resolves(path)] == []


def test_no_test_module_imports_another() -> None:
    modules = [
        (file.name, module)
        for file in FILES
        for module in re.findall(r"^ *(?:import|from) ([\w.]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(modules) > 1000
    assert [names for names in modules if any(part.startswith("test_") for part in names[1].split("."))] == []


@pytest.mark.thorough
def test_names_that_tests_import_exist() -> None:
    """Also where a test is not collected, or imports in a function."""
    imports = {
        f"{node.module}.{name.name}": file
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "sqlanon"
        for name in node.names
    }
    assert len(imports) > 200
    assert {path: file for path, file in imports.items() if not resolves(path)} == {}


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((TESTS / "oracles").glob("*.py")), ids=lambda file: file.stem)
def test_an_oracle_imports_nothing_of_the_package(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in modules if name and name.partition(".")[0] == "sqlanon"} == set()


def test_the_command_line_in_this_process(tmp_path: Path) -> None:
    ended = cli("anonymize", "none.toml", cwd=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert "none.toml" in ended.err
    assert cli("--version").out.startswith("sqlanon ")
