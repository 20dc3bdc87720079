"""Runs the demo's attack: links the table of a file to the voter list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from sqlanon.demo.linkage import SHARED, Linkage, fitting, link, one_by_name, right_names, smallest_class
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import table
from sqlanon.support.workdir import private_directory

QUASI = (*SHARED, "ethnicity")
"""The quasi-identifiers of the demo's policy; the voter list lacks the last."""


@dataclass(frozen=True)
class Victim:
    """A patient who is identified in the private table, though it shows no names."""

    name: str
    zip: str
    birth_date: date
    sex: str
    diagnosis: str


@dataclass(frozen=True)
class FittingRows:
    """The rows of a table that fit a voter: their labels, their number, and their number of diagnoses."""

    zip: str
    birth_date: str | date
    sex: str
    rows: int
    diagnoses: int


@dataclass(frozen=True)
class Attack:
    """What the attack finds: the join, how many names are right (not known for a release), the k of the table, and one
    identified patient with the rows that fit."""

    linkage: Linkage
    right_names: int | None
    smallest_class: int
    victim: Victim | None
    shown: FittingRows | None


def attack(hospital: Path, target: Path, levels: Mapping[str, int]) -> Attack:
    """Link the table ``patients`` of a file with the voters of the hospital's file."""
    own = target == hospital
    patients, voters = (table(name, "main", "hospital") for name in ("patients", "voters"))
    people = table("patients", "main", "hospital" if own else "target")
    victim = one_by_name(patients, voters, "diagnosis")
    with private_directory(target.parent, ".sqlanon-demo-") as spill:
        engine = DuckDBEngine.open_private(spill)
        with engine.connection:
            engine.attach(hospital, "hospital", read_only=True)
            if not own:
                engine.attach(target, "target", read_only=True)
            return Attack(
                linkage=Linkage(*engine.rows(link(people, voters, levels))[0]),
                right_names=engine.rows(right_names(patients, voters))[0][0] if own else None,
                smallest_class=engine.rows(smallest_class(people, QUASI))[0][0],
                victim=next((Victim(*row) for row in engine.rows(victim)), None),
                shown=next(
                    (FittingRows(*row) for row in engine.rows(fitting(people, victim, levels, "diagnosis"))), None
                ),
            )
