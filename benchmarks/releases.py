"""Whether releases are the same across commits: some fifty policies over seeded data.

    python benchmarks/releases.py record FILE       write down what comes out
    python benchmarks/releases.py compare FILE      compare; exit status 1 if anything differs

For each policy it records the result as ``--json`` has it, a hash of the rows, the verification with and without the
policy, the names of the plan's stages, the error if there is one, and for some policies the risk. Where noise is drawn,
only the number of rows counts. Times, paths and identifiers are left out. A history is several publications in one
folder with one catalog: it records each publication, and the ledger at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import tomllib

import sqlanon
from sqlanon.cli import main as command_line
from sqlanon.demo.hospital import make_hospital

ATTRIBUTES = """
[attributes]
name = { role = "identifying" }
address = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
birth_date = { role = "quasi", hierarchy = { dates = ["year", "decade"] } }
sex = { role = "quasi", hierarchy = "suppress" }
ethnicity = { role = "quasi", hierarchy = "suppress" }
diagnosis = { role = "sensitive" }
cost = { role = "insensitive" }
"""
TREE = 'diagnosis = { role = "sensitive", hierarchy = [{ mask = "right" }] }'
SEARCH = "[search]\nsuppression_limit = 0.05\n"
L = '[[privacy.l_diversity]]\nattribute = "diagnosis"\n'
T = '[[privacy.t_closeness]]\nattribute = "diagnosis"\n'

PRIVACY = {
    "k": "k = 5",
    "k masked": "k = 5",
    "distinct l": f'k = 3\n{L}kind = "distinct"\nl = 3',
    "entropy l": f'k = 3\n{L}kind = "entropy"\nl = 2.5',
    "recursive l": f'k = 3\n{L}kind = "recursive"\nl = 2\nc = 3',
    "joint l": f'k = 2\n{L}kind = "distinct"\nl = 1\njoint = true',
    "equal t": f'k = 3\n{T}distance = "equal"\nt = 0.3',
    "ordered t": f'k = 3\n{T}distance = "ordered"\nt = 0.2',
    "hierarchical t": f'k = 3\n{T}distance = "hierarchical"\nt = 0.2',
    "delta": '[[privacy.delta_disclosure]]\nattribute = "diagnosis"\ndelta = 1.5',
    "beta": 'k = 3\n[[privacy.beta_likeness]]\nattribute = "diagnosis"\nbeta = 2',
    "alpha": 'k = 3\n[[privacy.alpha_k]]\nattribute = "diagnosis"\nalpha = 0.5',
    "shields": 'k = 2\n[[privacy.k_anonymity]]\nquasi = ["zip", "sex"]\nk = 20',
    "table": "average_risk = 0.1\nsample_uniqueness = 0.05",
    "uniqueness": "[privacy.population_uniqueness]\nlimit = 0.05\nsampling_fraction = 0.1",
    "all": f'k = 4\naverage_risk = 0.2\n{L}kind = "entropy"\nl = 2\n{T}distance = "equal"\nt = 0.4\n'
    '[[privacy.beta_likeness]]\nattribute = "diagnosis"\nbeta = 4',
}
STRATEGIES = ["k_minimal", "samarati", "incognito", "ola", "flash", "datafly", "mu-argus", "mondrian", "k-similar"]
STRATEGIES += ["subtree", "local"]
MEASURES = ["precision", "height", "discernibility", "average_class_size", "distinct", "suppression", "entropy"]


def policies() -> dict[str, str]:
    """The policies, as TOML without source, release and catalog."""
    texts = {}
    for name, privacy in PRIVACY.items():
        attributes = ATTRIBUTES
        if name == "joint l":
            attributes = ATTRIBUTES.replace('"insensitive"', '"sensitive"')
        if name == "hierarchical t":
            attributes = ATTRIBUTES.replace('diagnosis = { role = "sensitive" }', TREE)
        texts[name] = f"{attributes}\n[privacy]\n{privacy}\n{SEARCH}"
    for strategy in STRATEGIES:
        texts[strategy] = f'{ATTRIBUTES}\n[privacy]\nk = 5\n{SEARCH}strategy = "{strategy}"\n'
    for measure in MEASURES:
        texts[measure] = f'{ATTRIBUTES}\n[privacy]\nk = 5\n{SEARCH}measure = "{measure}"\n'
    sets = 'strategy = "mondrian"\nsummary = "set"\ncuts = "relaxed"\n'
    texts["mondrian sets"] = f"{ATTRIBUTES}\n[privacy]\nk = 5\n{SEARCH}{sets}"
    texts["cells"] = f'{ATTRIBUTES}\n[privacy]\nk = 5\n{SEARCH}suppression = "cells"\n'
    noisy = ATTRIBUTES.replace('"insensitive" }', '"quasi", noise = { epsilon = 1.0, bounds = [0, 100000] } }')
    texts["noise"] = f"{noisy}\n[privacy]\nk = 5\n{SEARCH}"
    texts["decoys"] = f"{ATTRIBUTES}\n[privacy]\nk = 5\n{SEARCH}"
    texts["impossible"] = f"{ATTRIBUTES}\n[privacy]\nk = 100000\n"
    text = "\n".join(line for line in ATTRIBUTES.splitlines() if not line.startswith("ethnicity"))
    texts["population"] = f'{text}\n[privacy]\nk_map = 3\n{SEARCH}[population]\ntable = "voters"\n'
    texts["person"] = f"{ATTRIBUTES}\n[privacy]\nk = 3\n{SEARCH}"
    return texts


@dataclass(frozen=True)
class Publication:
    """One publication of a history: a change of the source before it, and policy keys in addition to its attributes."""

    levels: Mapping[str, int]
    """Levels that are fixed, by quasi-identifier."""
    release: str = "release"
    section: str = ""
    change: str = ""
    command: str = "anonymize"


COARSE = {"zip": 2, "birth_date": 2, "sex": 1, "ethnicity": 1}
FINE_ZIP = {"zip": 1, "birth_date": 3, "sex": 1, "ethnicity": 1}
FINE_SEX = {"zip": 3, "birth_date": 2, "sex": 0, "ethnicity": 1}
GONE = "DELETE FROM patients WHERE hash(name) % 40 = 0"
NEW = """INSERT INTO patients
    SELECT 'new ' || name, address, zip, birth_date, sex, ethnicity, diagnosis, cost FROM patients
    WHERE hash(name) % 8 < 3"""
HISTORIES = {
    "after": [
        Publication(COARSE, "first"),
        Publication({}, "second", 'after = ["first"]', NEW),
        Publication({}, "third", 'after = "all"', GONE),
    ],
    "keep": [
        Publication(COARSE, section="keep = 2"),
        Publication(COARSE, section="keep = 2"),
        Publication(COARSE, section='keep = 2\nafter = "all"', change=NEW),
    ],
    "extend": [Publication(COARSE), Publication(COARSE, change=NEW, command="extend")],
    "joint audit": [Publication(FINE_ZIP, "first"), Publication(FINE_SEX, "second")],
}
FIGURE = re.compile(r"\d[\d.e+-]*\d|\d")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
RENAMED = {"words and views": "comments and views"}  # names of checks in older commits
WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
RISKS = ("k", "person", "population")
DRAWN = ("noise", "decoys")
VOLATILE = {"seconds", "release", "digest", "sha256", "run", "run_id", "created", "version", "path", "policy"}
VOLATILE |= {"published_at"}
VOLATILE |= {"fully_suppressed", "alternative"}  # older commits do not print them, and trials end by the clock


def _figures_of(key: str, value: Any) -> Any:
    """Reduce a sentence to its figures, without separators of thousands: the words may differ."""
    if key in ("message", "err") and isinstance(value, str):
        return FIGURE.findall(THOUSANDS.sub("", value))
    return RENAMED.get(value, value) if key == "name" and isinstance(value, str) else _plain(value)


def _strip_warnings(value: Any) -> Any:
    """A recorded value without the words of its warnings."""
    if isinstance(value, Mapping):
        return {
            key: [_figures_of("message", warning) for warning in value[key]]
            if key == "warnings" and value[key]
            else _strip_warnings(item)
            for key, item in _plain(value).items()
        }
    return [_strip_warnings(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _figures_of(key, item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _command(arguments: list[str]) -> dict[str, Any]:
    """The output of a command, its exit status, and its errors, without the query that shows the rows of a refusal."""
    out, err = io.StringIO(), io.StringIO()
    status: Any = 0
    before = sys.argv
    sys.argv = ["sqlanon", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line()
    except SystemExit as done:
        status = done.code or 0
    finally:
        sys.argv = before
    try:
        printed = _plain(json.loads(out.getvalue()))
    except ValueError:
        printed = out.getvalue()
    return {"status": status, "out": printed, "err": " ".join(err.getvalue().split("ATTACH ", maxsplit=1)[0].split())}


def _rows_and_columns(release: Path, drawn: bool) -> dict[str, Any]:
    """The contents of a release file."""
    with duckdb.connect(str(release), read_only=True) as connection:
        table = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'").fetchall()
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall()
        columns = [row[:2] for row in connection.execute('DESCRIBE FROM "patients"').fetchall()]
        selected = "count(*)" if drawn else "count(*), sum(hash(t))::VARCHAR"
        rows = connection.execute(f'SELECT {selected} FROM "patients" AS t').fetchall()
        manifest = () if drawn else connection.execute("FROM sqlanon.manifest").fetchall()[0]
    return {"tables": table, "views": views, "columns": columns, "rows": rows, "manifest": len(manifest)}


def _publication(folder: Path, publication: Publication) -> dict[str, Any]:
    """The result of one publication of a history, which is then verified with its policy."""
    attributes = ATTRIBUTES
    for name, level in publication.levels.items():
        line = next(line for line in ATTRIBUTES.splitlines() if line.startswith(f"{name} ="))
        fixed = f"{line.removesuffix(' }')}, min_level = {level}, max_level = {level} }}"
        attributes = attributes.replace(line, fixed)
    policy, release = folder / f"{publication.release}.toml", folder / f"{publication.release}.duckdb"
    policy.write_text(
        '[source]\ndatabase = "hospital.duckdb"\ntable = "patients"\nkey = ["name", "address"]\n'
        f"{attributes}\n[privacy]\nk = 5\n[search]\nsuppression_limit = 0.5\n"
        f'[release]\ndatabase = "{release.name}"\n{publication.section}\n[catalog]\ndatabase = "c.duckdb"\n'
    )
    results = {publication.command: _command([publication.command, str(policy), "--json"])}
    with sqlanon.connect() as db:
        stages = db.plan(sqlanon.Policy.load(policy)).stages
        results["plan"] = {"stages": [stage.name for stage in stages]}
    if release.exists():
        results["verify with policy"] = _command(["verify", str(release), "--policy", str(policy), "--json"])
        results["release"] = _rows_and_columns(release, drawn=False)
    return results


def history(folder: Path, name: str, publications: list[Publication]) -> dict[str, Any]:
    """The results of several publications in one folder."""
    place = folder / name.replace(" ", "_")
    place.mkdir()
    shutil.copy(folder / "hospital.duckdb", place / "hospital.duckdb")
    outcomes: dict[str, Any] = {}
    for i, publication in enumerate(publications, start=1):
        if publication.change:
            with duckdb.connect(str(place / "hospital.duckdb")) as connection:
                connection.execute(publication.change)
        outcomes[f"{i} {publication.release}"] = _publication(place, publication)
    with duckdb.connect(str(place / "c.duckdb"), read_only=True) as connection:
        ledger = "SELECT path, breaks, len(after), generalization FROM sqlanon.ledger ORDER BY published_at"
        outcomes["ledger"] = connection.execute(ledger).fetchall()
        outcomes["runs"] = connection.execute("SELECT count(*) FROM sqlanon.runs").fetchall()
    text = json.dumps(outcomes, default=str).replace(str(place), "HERE")
    cleaned: dict[str, Any] = json.loads(WHEN.sub("WHEN", text))
    return cleaned


def outcome(folder: Path, name: str, body: str) -> dict[str, Any]:
    """The result of one policy."""
    source = '[source]\ndatabase = "hospital.duckdb"\ntable = "patients"\n'
    suppressed = '\nsuppressed = "mask"' if name == "k masked" else ""
    text = f'{source}{body}\n[release]\ndatabase = "release.duckdb"{suppressed}\n[catalog]\ndatabase = "c.duckdb"\n'
    if name == "population":
        text = text.replace('table = "patients"', 'table = "patients"\nundeclared = "drop"', 1)
    if name == "decoys":
        text = text.replace("[release]", "[release]\ndecoys = true")
    if name == "person":
        text = text.replace('table = "patients"', 'table = "patients"\nperson = "name"')
        text = text.replace('name = { role = "identifying" }\n', "")
    tomllib.loads(text)
    place = folder / name.replace(" ", "_")
    place.mkdir()
    (place / "hospital.duckdb").symlink_to(folder / "hospital.duckdb")
    policy, release = place / "policy.toml", place / "release.duckdb"
    policy.write_text(text)
    outcomes = {"anonymize": _command(["anonymize", str(policy), "--json"])}
    if name in RISKS:
        outcomes["risk"] = _command(["risk", str(policy), "--json"])
    with contextlib.suppress(sqlanon.SqlanonError), sqlanon.connect() as db:
        stages = db.plan(sqlanon.Policy.load(policy)).stages
        outcomes["plan"] = {"stages": [stage.name for stage in stages]}
    if release.exists():
        if name in PRIVACY:
            outcomes["verify"] = _command(["verify", str(release), "--json"])
        outcomes["verify with policy"] = _command(["verify", str(release), "--policy", str(policy), "--json"])
        outcomes["release"] = _rows_and_columns(release, name in DRAWN)
    cleaned: dict[str, Any] = json.loads(json.dumps(outcomes, default=str).replace(str(place), "HERE"))
    if name in DRAWN:
        for part in ("verify", "verify with policy", "anonymize"):
            if part in cleaned:
                cleaned[part]["out"] = sorted(cleaned[part]["out"])
    return cleaned


def differences(before: Any, after: Any, place: str) -> list[str]:
    """The differences of two trees, one a line."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for key in [*before, *(key for key in after if key not in before)]
            for line in differences(before.get(key), after.get(key), f"{place} > {key}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            line
            for i, (left, right) in enumerate(zip(before, after, strict=True))
            for line in differences(left, right, f"{place}[{i}]")
        ]
    if isinstance(before, float) and isinstance(after, float):
        return [] if math.isclose(before, after, rel_tol=1e-12) else [f"{place}: {before} -> {after}"]
    return [] if before == after else [f"{place}: {before!r} -> {after!r}"]


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every Nth, from I on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_hospital(folder / "hospital.duckdb", rows=1500)
        first, step = arguments.part
        bodies = policies()
        outcomes = {
            name: history(folder, name, HISTORIES[name]) if name in HISTORIES else outcome(folder, name, bodies[name])
            for name in [*bodies, *HISTORIES][first::step]
        }
    outcomes = json.loads(json.dumps(outcomes, default=str))
    if arguments.action == "record":
        arguments.file.write_text(json.dumps(outcomes, indent=1, ensure_ascii=False))
        print(f"{len(outcomes)} policies recorded")
        return
    recorded = json.loads(arguments.file.read_text())
    lines = differences(_strip_warnings({name: recorded[name] for name in outcomes}), _strip_warnings(outcomes), "")
    print("\n".join(line[:400] for line in lines) or f"{len(outcomes)} policies: no difference")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
