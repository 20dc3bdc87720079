"""Plays a new user on five tables: suggest, anonymize, compare. Prints commands, seconds, and obstacles.

    python tests/suggest/new_user.py [FOLDER]

``ONLY="adult penguins"`` leaves the others out, and ``STRATEGIES=optimal,mondrian`` names what to compare.

Adult and FARS are in the folder of test data (``SQLANON_DATA``), and are left out where it is missing. The
penguins are those of the package palmerpenguins (CC0: Horst, Hill and Gorman 2020). Flights and the customers of a
German shop are made here, the same on every run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

HERE = Path(__file__).parent

FLIGHTS = """
    SELECT
        TIMESTAMP '2024-01-01 05:00:00' + INTERVAL (h(i, 0, 60 * 24 * 364)) MINUTE AS departure,
        ['AA', 'DL', 'UA', 'WN', 'B6', 'NK'][1 + h(i, 1, 6)] AS carrier,
        ['ATL', 'LAX', 'ORD', 'DFW', 'DEN', 'JFK', 'SFO', 'SEA', 'MCO', 'BOS', 'PHX'][1 + h(i, 2, 11)] AS origin,
        ['ATL', 'LAX', 'ORD', 'DFW', 'DEN', 'JFK', 'SFO', 'SEA', 'MCO', 'BOS', 'PHX'][1 + h(i + 1, 3, 11)] AS dest,
        200 + 10 * h(i, 4, 250) AS distance,
        (h(i, 5, 30) - 10 + CASE WHEN h(i, 6, 20) = 0 THEN 20 * h(i, 7, 30) ELSE 0 END)::INTEGER AS dep_delay,
        printf('N%05d', h(i, 8, 90000)) AS ticket_number,
        chr(65 + h(i, 9, 6)) AS cabin,
        18 + h(i, 10, 70) AS passenger_age,
        ['United States', 'Canada', 'Mexico', 'Germany', 'France', 'Japan'][1 + h(i, 11, 30) % 6] AS nationality,
        round(60 + h(i, 12, 90000) / 100, 2) AS fare
    FROM range(4000) AS r(i)
"""
CUSTOMERS = """
    SELECT
        100000 + 7 * i AS Kundennummer,
        ['Herr', 'Frau'][1 + h(i, 0, 2)] AS Anrede,
        ['Anna', 'Ben', 'Clara', 'David', 'Emma', 'Felix', 'Greta', 'Hans'][1 + h(i, 1, 8)] AS Vorname,
        ['Müller', 'Schmidt', 'Weber', 'Wagner', 'Becker', 'Hoffmann'][1 + h(i, 2, 6)] AS Nachname,
        ['Hauptstraße', 'Gartenweg', 'Bahnhofstraße'][1 + h(i, 3, 3)] || ' ' || (1 + h(i, 4, 99)) AS Strasse,
        printf('%05d', 1067 + 973 * h(i, 5, 90)) AS PLZ,
        ['Bayern', 'Berlin', 'Hessen', 'Sachsen', 'Hamburg', 'Nordrhein-Westfalen', 'Baden-Württemberg', 'Bremen',
         'Niedersachsen', 'Thüringen'][1 + h(i, 5, 90) % 10] AS Bundesland,
        (DATE '1935-01-01' + h(i, 6, 25000)) AS Geburtsdatum,
        'kunde' || i || '@beispiel.de' AS "E-Mail",
        '+49 30 ' || (1000000 + h(i, 7, 8999999)) AS Telefon,
        printf('DE%02d 3704 0044 %04d %04d 00', h(i, 8, 98), h(i, 9, 9999), h(i, 10, 9999)) AS IBAN,
        ['ledig', 'verheiratet', 'geschieden', 'verwitwet'][1 + least(h(i, 11, 7), 3)] AS Familienstand,
        ['Hauptschulabschluss', 'Realschulabschluss', 'Abitur', 'Bachelor'][1 + h(i, 12, 4)] AS Schulabschluss,
        ['Lehrer', 'Pfleger', 'Ingenieur', 'Verkäufer', 'Bäcker', 'Fahrer', 'Arzt', 'Jurist'][1 + h(i, 13, 8)] AS Beruf,
        round(h(i, 14, 500000) / 100, 2) AS Umsatz
    FROM range(5000) AS r(i)
"""
HASH = "CREATE MACRO h(i, salt, n) AS (hash(i * 31 + salt * 1000003) % n)::INTEGER"


@dataclass
class Visit:
    """What a new user did with a table, and what came of it; ``obstacles``: what did not work at once."""

    name: str
    commands: list[tuple[str, float]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    loss: float = 1.0
    best: float = 1.0
    best_strategy: str = ""
    hidden: tuple[str, ...] = ()
    """Columns of which nothing is left in the release."""
    kept_elsewhere: tuple[str, ...] = ()
    """Those of them that another strategy would keep."""

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.commands)


def make_tables(folder: Path, real: Path | None) -> dict[str, Path]:
    """The five tables as files, each in a folder of its own."""
    found = {}
    with duckdb.connect() as connection:
        connection.execute(HASH)
        for name, query in (("flights", FLIGHTS), ("kunden", CUSTOMERS)):
            (folder / name).mkdir()
            ending = "parquet" if name == "flights" else "csv"
            found[name] = folder / name / f"{name}.{ending}"
            connection.execute(f"COPY ({query}) TO '{found[name]}'")
    found["penguins"] = folder / "penguins" / "penguins.csv"
    for name in ("adult", "fars") if real is not None else ():
        found[name] = folder / name / f"{name}.csv"
    for name in ("penguins", "adult", "fars"):
        if name in found:
            found[name].parent.mkdir()
            own = HERE / "data" / "penguins.csv" if name == "penguins" or real is None else real / name / f"{name}.csv"
            found[name].write_bytes(own.read_bytes())
    return found


def visit(name: str, table: Path, strategies: str | None = None) -> Visit:
    """Suggest and anonymize with no other options than the help's examples; then look whether anything does better:
    of these strategies, or all that `compare` takes by default."""
    seen = Visit(name)
    folder = table.parent
    _run(seen, folder, "suggest", table.name, "-o", "policy.toml")
    done = json.loads(_run(seen, folder, "anonymize", "policy.toml", "--json") or "{}")
    if not done:
        return seen
    text = (folder / "policy.toml").read_text(encoding="utf-8")
    seen.loss = done["score"]
    released = Path(done["release"])
    quasi = re.findall(r'^("?)([^"\n]+?)\1 = \{ role = "quasi"', text, re.MULTILINE)
    names = [one for _, one in quasi]
    with duckdb.connect(str(released), read_only=True) as connection:
        counts = connection.execute(
            f"SELECT {', '.join(f'count(DISTINCT coalesce({_quoted(one)}::VARCHAR, chr(0)))' for one in names)} "
            f"FROM {_quoted(done['table'])}"
        ).fetchall()[0]
    seen.hidden = tuple(one for one, count in zip(names, counts, strict=True) if count == 1)
    tried = dict(re.findall(r"^#   ([a-z -]+): loss (?:at most )?[^\n]*?(?:hides ([^\n]*))?$", text, re.MULTILINE))
    seen.kept_elsewhere = tuple(
        one for one in seen.hidden if any(one not in hides.split(", ") for hides in tried.values())
    )
    more = [] if strategies is None else ["--strategies", strategies]
    compared = json.loads(_run(seen, folder, "compare", "policy.toml", "--json", *more, timed=False) or "[]")
    losses = {one["strategy"]: one["loss"] for one in compared if one["loss"] is not None}
    losses["the release"] = seen.loss
    seen.best_strategy = min(losses, key=lambda one: losses[one])
    seen.best = losses[seen.best_strategy]
    return seen


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _run(seen: Visit, folder: Path, *arguments: str, timed: bool = True) -> str:
    started = time.monotonic()
    command = [sys.executable, "-m", "sqlanon", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, encoding="utf-8")
    if timed:
        seen.commands.append((f"sqlanon {' '.join(arguments)}", time.monotonic() - started))
    if done.returncode or (timed and done.stderr):
        seen.obstacles.append(f"sqlanon {' '.join(arguments)}: {done.returncode} {done.stderr.strip()}")
    return done.stdout if not done.returncode else ""


def main() -> None:
    real = Path(os.environ.get("SQLANON_DATA") or HERE.parents[2] / "shared" / "data")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="new_user_"))
    only = os.environ.get("ONLY", "").split()
    for name, table in make_tables(folder, real if real.is_dir() else None).items():
        if only and name not in only:
            continue
        seen = visit(name, table, os.environ.get("STRATEGIES"))
        print(f"{name}: loss {seen.loss:.3g}; the best that compare finds: {seen.best:.3g} ({seen.best_strategy})")
        for command, seconds in seen.commands:
            print(f"  {command}: {seconds:.1f} s")
        print(
            f"  hidden: {', '.join(seen.hidden) or 'nothing'}; kept elsewhere: {', '.join(seen.kept_elsewhere) or '-'}"
        )
        for one in seen.obstacles:
            print(f"  obstacle: {one}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
