"""The package as a stranger gets it: built, installed away from the checkout, and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import Specifier
from packaging.version import Version

import sqlanon

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEAVY = {"altair", "duckdb", "numpy", "pandas", "pyarrow", "pydantic", "rich", "sqlglot", "typer"}


def sql_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SQL = sql_files(ROOT / "sql")


def run(*command: str | Path, cwd: Path) -> str:
    """Output of a command; it must succeed. It does not see this checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def loaded_by(statement: str, cwd: Path) -> set[str]:
    """The top-level modules that a fresh Python has after a statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps([name for name in sys.modules if '.' not in name]))"
    return set(json.loads(run(sys.executable, "-c", program, cwd=cwd)))


# Quick


def test_the_version_is_defined_once() -> None:
    assert PROJECT["version"] == sqlanon.__version__


def test_the_changelog_begins_with_this_version() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if line.startswith("## "))
    assert first.startswith(f"## [{sqlanon.__version__}]")


@pytest.mark.slow
def test_the_import_loads_nothing_heavy(tmp_path: Path) -> None:
    assert not HEAVY & loaded_by("import sqlanon", tmp_path)


@pytest.mark.thorough
def test_a_database_needs_no_data_frames_and_no_terminal(tmp_path: Path) -> None:
    loaded = loaded_by("from sqlanon import connect\nwith connect() as db: pass", tmp_path)
    assert HEAVY & loaded == {"duckdb", "pydantic", "sqlglot"}


ALONE = """
import os, pkgutil, sys
import duckdb, pyarrow, pydantic, sqlglot, sqlglot.optimizer, typer, rich.table, altair
import sqlanon
names = {NAMES}
for name in names or [one.name for one in pkgutil.walk_packages(sqlanon.__path__, "sqlanon.")]:
    if not (child := os.fork()):
        try:
            exec(f"from sqlanon import {name}" if names else f"import {name}")
        except ModuleNotFoundError as error:  # of an extra
            os._exit(int(error.name.startswith("sqlanon")))
        except ImportError as error:
            print(name, error, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} cannot be imported first")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("names", [sorted(sqlanon.__all__), []], ids=["names", "modules"])
def test_each_name_and_module_can_be_imported_first(names: list[str]) -> None:
    script = ALONE.replace("{NAMES}", str(names)).replace(", altair", "" if names else ", altair")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_exactly_the_public_names_exist() -> None:
    for name in sqlanon.__all__:
        assert getattr(sqlanon, name) is not None
    assert set(sqlanon.__all__) <= set(dir(sqlanon))
    with pytest.raises(AttributeError, match="no attribute 'anonymise'"):
        _ = sqlanon.anonymise  # that is the point


# Slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as an index would: what that leaves out is missing."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


class Environment:
    """A new virtual environment."""

    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        self.folder = folder
        self.programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    def __call__(self, program: str, *arguments: str | Path) -> str:
        return run(self.programs / program, *arguments, cwd=self.folder)


@pytest.fixture(scope="module")
def installed_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    environment = Environment(tmp_path_factory.mktemp("away"))
    environment("pip", "install", "-q", wheel)
    yield environment


def the_demo_runs(environment: Environment) -> None:
    output = environment("sqlanon", "demo", "--rows", "2000", "--dir", "demo")
    assert "0 patients get a name" in output
    assert "\nVerified: " in environment("sqlanon", "verify", "demo/release.duckdb")
    assert environment("sqlanon", "--version").strip() == f"sqlanon {sqlanon.__version__}"


def place(environment: Environment) -> Path:
    """The location that the package is loaded from, in a folder outside the checkout."""
    return Path(environment("python", "-c", "import sqlanon; print(sqlanon.__file__)").strip()).parent


@pytest.mark.thorough
def test_an_installed_wheel_runs_the_demo(installed_wheel: Environment) -> None:
    package = place(installed_wheel)
    assert installed_wheel.folder in package.parents
    assert sql_files(package / "sql") == SQL
    the_demo_runs(installed_wheel)


@pytest.mark.thorough
def test_an_editable_install_runs_the_demo(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment("pip", "install", "-q", "-e", ROOT)
    assert place(environment) == ROOT / "sqlanon"
    the_demo_runs(environment)


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    information = metadata.rpartition("/")[0]
    assert {name.partition("/")[0] for name in names} == {"sqlanon", information}
    assert "sqlanon/py.typed" in names
    assert f"{information}/licenses/LICENSE" in names
    assert (fields["Name"], fields["Version"], fields["Requires-Python"]) == ("sqlanon", sqlanon.__version__, ">=3.10")


@pytest.mark.thorough
def test_no_library_is_allowed_that_is_newer_than_the_tested(installed_wheel: Environment) -> None:
    """pip took the newest that the wheel allows: each upper bound is the step after it. (.ci/run tests the oldest.)"""
    document = json.loads(installed_wheel("pip", "list", "--format", "json", "--disable-pip-version-check"))
    versions = {package["name"].lower(): Version(package["version"]) for package in document}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        if requirement.marker is None or requirement.marker.evaluate():
            (upper,) = (bound for bound in requirement.specifier if bound.operator == "<")
            assert upper == after(versions[requirement.name], upper), requirement


def after(version: Version, bound: Specifier) -> Specifier:
    """The bound that shuts out what comes after a version, as exactly as the given one."""
    *first, last = version.release[: len(Version(bound.version).release)]
    return Specifier("<" + ".".join(map(str, [*first, last + 1])))
