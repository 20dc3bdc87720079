"""Random sources on which a search that prunes too much goes wrong, found with the oracle.

In some a generalization satisfies the requirements, and a higher one does not: classes that meet them merged with
classes that do not, and were lost; or a person's rows merged, and count once. In others a generalization suppresses
exactly as many rows as may be: who expects one more below a higher one never finds it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from oracles import oracle, oracle_privacy
from oracles.oracle import Hierarchy, Levels, Value
from oracles.oracle_privacy import Record, Release, Source
from properties.privacy_cases import OF_A_POPULATION, PrivacyCase

Persons = Literal["settled", "moving"] | None
"""Whether rows have persons, each in one combination of quasi-identifiers or in several."""

VALUES = ("flu", "cold", "cancer", "gout")


def tree(rng: random.Random, prefix: str) -> Hierarchy:
    """2 to 5 values, two or three levels."""
    ground = [f"{prefix}{i}" for i in range(rng.randint(2, 5))]
    groups = {value: rng.randrange(2) for value in ground}
    if rng.random() < 0.4:
        return Hierarchy({value: (value, "*") for value in ground})
    return Hierarchy({value: (value, f"{prefix}-{groups[value]}", "*") for value in ground})


def source(rng: random.Random, population: bool, persons: Persons) -> Source:
    """Combinations of quasi-identifiers that each have a few usual sensitive values.

    Persons are few, so that many have several rows; the population has most rows of the source, and others.
    """
    quasi = {name: tree(rng, name) for name in ("x", "y", "z")[: rng.choice([1, 2, 2, 3])]}
    moving = persons == "moving"
    few = rng.randint(2, 5)
    records: list[dict[str, Value]] = []
    for i in range(rng.randint(2, 3 if moving else 7)):
        values = {name: rng.choice([*hierarchy.paths]) for name, hierarchy in quasi.items()}
        usual = rng.sample(VALUES[:3] if moving else VALUES, rng.randint(2 if moving else 1, 3))
        for j in range(rng.randint(2 if moving else 1, 8)):
            who = rng.randrange(few) if moving else 10 * i + rng.randrange(few)
            records.append({**values, "s": usual[j % len(usual)], "t": rng.choice(["p", "q", None]), "who": who})
    rate = rng.choice([0.3, 0.5, 0.8])
    people = [{name: row[name] for name in (*quasi, "who")} for row in records * 2 if rng.random() < rate]
    for i in range(rng.randrange(4)):
        people.append({name: rng.choice([*hierarchy.paths]) for name, hierarchy in quasi.items()} | {"who": 100 + i})
    sensitive = {"s": Hierarchy({v: (v, "bad" if v == "cancer" else "mild", "*") for v in VALUES}), "t": None}
    if persons is None:
        nobody = without(people, "who") if population else None
        return Source(without(records, "who"), quasi, sensitive, population=nobody)
    who = "who" if population else None
    return Source(list(records), quasi, sensitive, "who", list(people) if population else None, who)


def without(records: Sequence[Record], name: str) -> list[Record]:
    return [{key: value for key, value in record.items() if key != name} for record in records]


def satisfies(case: PrivacyCase, levels: Levels) -> bool:
    return oracle_privacy.satisfies(Release(case.source, levels, case.privacy), case.limit)


def is_upward_closed(case: PrivacyCase) -> bool:
    """Whether every generalization above a feasible one is feasible."""
    nodes = list(oracle.lattice(case.source.table))
    good = {levels for levels in nodes if satisfies(case, levels)}
    return all(high in good for low in good for high in nodes if oracle.strictly_lower(low, high))


def random_cases(rng: random.Random, privacies: Sequence[Mapping[str, Any]], persons: Persons) -> Iterator[PrivacyCase]:
    """Sources without end, nothing suppressed."""
    while True:
        privacy = rng.choice(privacies)
        table = source(rng, not OF_A_POPULATION.isdisjoint(privacy), persons)
        yield PrivacyCase(table, privacy, "0", rng.choice(oracle.MEASURES))


def not_monotone(
    seed: int, privacies: Sequence[Mapping[str, Any]], limits: Sequence[str], persons: Persons = None
) -> PrivacyCase:
    """A source on which one of ``privacies`` is not monotone."""
    rng = random.Random(seed)
    cases = (replace(case, limit=rng.choice(limits)) for case in random_cases(rng, privacies, persons))
    return next(case for case in cases if not is_upward_closed(case))


def tight(seed: int, privacies: Sequence[Mapping[str, Any]], persons: Persons = None) -> PrivacyCase:
    """A source where as many rows, or persons, may be suppressed as a generalization, not the top, has to."""
    rng = random.Random(seed)
    for case in random_cases(rng, privacies, persons):
        *nodes, _ = oracle.lattice(case.source.table)
        release = Release(case.source, rng.choice(nodes), case.privacy)
        if release.kept and release.suppressed and release.holds_as_a_whole():
            lost = release.suppressed if persons is None else release.suppressed_persons
            limit = min((lost + 0.5) / case.source.count(case.source.rows), 1)
            return replace(case, limit=f"{limit:.6f}")
    raise AssertionError
