"""Plays a new user on five tables: suggest, anonymize, compare. Prints a line for each table, and what was in the way.

    python tests/suggest/new_user.py [FOLDER]

``ONLY="adult penguins"`` leaves the others out, and ``STRATEGIES=optimal,mondrian`` names what to compare; without it,
all that `compare` runs by default.

Four of the tables are real. Adult and FARS are in the folder of test data (``SQLANON_DATA``), and are left out where it
is missing. The penguins and a hundredth of the flights are in ``data/``, with their origin and licence. The customers
of a German shop are made here, the same on every run: no such table of real people is free.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from sqlanon.policy import Policy

HERE = Path(__file__).parent
NAMES = ("adult", "fars", "penguins", "flights", "kunden")

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
    """Steps of a new user with a table, and their outcome; ``obstacles``: steps that failed at first."""

    name: str
    commands: list[tuple[str, float]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    loss: float = 1.0
    best: float = 1.0
    best_strategy: str = ""
    hidden: tuple[str, ...] = ()
    """Columns that are empty in the release."""
    kept_elsewhere: tuple[str, ...] = ()
    """The fully suppressed columns that another strategy would keep."""
    compared: dict[str, float] = field(default_factory=dict)
    """The loss of each strategy that `compare` ran to its end, or to its time limit."""

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.commands)

    def row(self) -> str:
        best = f"{self.best:.3f} {self.best_strategy}"
        hidden = ", ".join(self.hidden) or "none"
        return f"{self.name:<9} {len(self.commands):>8} {self.seconds:>7.0f} {self.loss:>6.3f}  {best:<18} {hidden}"


def make_table(name: str, folder: Path, real: Path | None) -> Path | None:
    """One of the tables as a file, in a separate folder; None without the test data."""
    (folder / name).mkdir(parents=True)
    table = folder / name / f"{name}.{'parquet' if name == 'flights' else 'csv'}"
    if name == "kunden":
        with duckdb.connect() as connection:
            connection.execute(HASH)
            connection.execute(f"COPY ({CUSTOMERS}) TO '{table}'")
        return table
    source_file = HERE / "data" / table.name
    if not source_file.exists():
        if real is None:
            return None
        source_file = real / name / table.name
    shutil.copyfile(source_file, table)
    return table


def visit(name: str, table: Path, strategies: str | None = None) -> Visit:
    """Suggest and anonymize with no other options than the help's examples; then look whether anything does better:
    of these strategies, or all that `compare` takes by default."""
    seen = Visit(name)
    folder = table.parent
    _run(seen, folder, "suggest", table.name, "-o", "policy.toml")
    done = json.loads(_run(seen, folder, "anonymize", "policy.toml", "--json") or "{}")
    if not done:
        return seen
    policy = Policy.load(folder / "policy.toml")
    seen.loss, quasi = done["score"], list(policy.quasi_identifiers)
    with duckdb.connect(done["release"], read_only=True) as connection:
        counts = connection.execute(
            f"SELECT {', '.join(f'count(DISTINCT coalesce({_quote_name(name)}::VARCHAR, chr(0)))' for name in quasi)} "
            f"FROM {_quote_name(done['table'])}"
        ).fetchall()[0]
    seen.hidden = tuple(column for column, count in zip(quasi, counts, strict=True) if count == 1)
    if seen.hidden:
        seen.kept_elsewhere = _kept_elsewhere(policy, seen.hidden)
    more = [] if strategies is None else ["--strategies", strategies]
    compared = json.loads(_run(seen, folder, "compare", "policy.toml", "--json", *more, timed=False) or "[]")
    # A release without k does not satisfy this policy.
    seen.compared = {
        row["strategy"]: row["loss"] for row in compared if row["loss"] is not None and row["guarantees_k"]
    }
    losses = {"release": seen.loss, **seen.compared}
    seen.best_strategy = min(losses, key=lambda strategy: losses[strategy])
    seen.best = losses[seen.best_strategy]
    return seen


def _kept_elsewhere(policy: Policy, hidden: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that one of the strategies would keep, by trials of the whole table."""
    import sqlanon  # noqa: PLC0415

    with sqlanon.connect() as db:
        trials = [trial for trial in db.try_strategies(policy, seconds=60) if trial.error is None]
    return tuple(name for name in hidden if any(name not in trial.fully_suppressed for trial in trials))


def _quote_name(name: str) -> str:
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
    data = Path(os.environ.get("SQLANON_DATA") or HERE.parents[2] / "shared" / "data")
    real = data if data.is_dir() else None
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="new_user_"))
    only = os.environ.get("ONLY", "").split()
    print(f"{'table':<9} {'commands':>8} {'seconds':>7} {'loss':>6}  {'best':<18} fully suppressed")
    for name in NAMES:
        table = make_table(name, folder, real) if not only or name in only else None
        if table is None:
            continue
        seen = visit(name, table, os.environ.get("STRATEGIES"))
        print(seen.row())
        for obstacle in seen.obstacles:
            print(f"  obstacle: {obstacle}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
