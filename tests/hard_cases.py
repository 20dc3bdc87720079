"""Random sources on which a search that takes a requirement for monotone goes wrong, found with the oracle.

Somewhere a generalization satisfies the requirements, and a higher one does not: classes that meet them merged with
classes that do not, and were lost; or a person's rows merged, and count once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import oracle
import oracle_privacy
from oracle import Hierarchy, Levels
from oracle_privacy import Record, Release, Source
from strategies_privacy import OF_A_POPULATION, PrivacyCase

Spec = Mapping[str, Any]

VALUES = ("flu", "cold", "cancer", "gout")


def tree(rng: random.Random, prefix: str) -> Hierarchy:
    """2 to 5 values, two or three levels."""
    ground = [f"{prefix}{i}" for i in range(rng.randint(2, 5))]
    groups = {value: rng.randrange(2) for value in ground}
    if rng.random() < 0.4:
        return Hierarchy({value: (value, "*") for value in ground})
    return Hierarchy({value: (value, f"{prefix}-{groups[value]}", "*") for value in ground})


def source(rng: random.Random, population: bool, persons: bool) -> Source:
    """Combinations of quasi-identifiers that each have a few usual sensitive values.

    With persons there are few, so that many of them are in several combinations.
    """
    quasi = {name: tree(rng, name) for name in ("x", "y", "z")[: rng.choice([1, 2, 2, 3])]}
    combinations = [
        (
            {name: rng.choice([*hierarchy.paths]) for name, hierarchy in quasi.items()},
            rng.sample(VALUES[:3] if persons else VALUES, rng.randint(2 if persons else 1, 3)),
            rng.randint(2 if persons else 1, 8),
        )
        for _ in range(rng.randint(2, 3 if persons else 7))
    ]
    few = rng.randint(2, 5)
    records: list[Record] = []
    for values, usual, n in combinations:
        for i in range(n):
            record = {**values, "s": usual[i % len(usual)], "t": rng.choice(["p", "q", None])}
            records.append(record | ({"who": rng.randrange(few)} if persons else {}))
    rate = rng.choice([0.3, 0.5, 0.8])
    people = [{name: row[name] for name in (*quasi, *["who"] * persons)} for row in records * 2 if rng.random() < rate]
    sensitive = {"s": Hierarchy({v: (v, "bad" if v == "cancer" else "mild", "*") for v in VALUES}), "t": None}
    who = "who" if persons else None
    return Source(records, quasi, sensitive, who, people if population else None, who if population else None)


def is_upward_closed(case: PrivacyCase) -> bool:
    """Whether all that is higher than a satisfying generalization satisfies."""
    good = {levels for levels in oracle.lattice(case.source.table) if satisfies(case, levels)}
    return all(above in good for below in good for above in higher(case, below))


def higher(case: PrivacyCase, levels: Levels) -> list[Levels]:
    """Everything strictly above."""
    return [other for other in oracle.lattice(case.source.table) if oracle.strictly_lower(levels, other)]


def satisfies(case: PrivacyCase, levels: Levels) -> bool:
    return oracle_privacy.satisfies(Release(case.source, levels, case.privacy), case.limit)


def hard_case(
    seed: int, privacies: Sequence[Mapping[str, Any]], limits: Sequence[str], persons: bool = False
) -> PrivacyCase:
    """The first random source on which one of ``privacies`` is not monotone."""
    rng = random.Random(seed)
    while True:
        privacy = rng.choice(privacies)
        population = not OF_A_POPULATION.isdisjoint(privacy)
        table = source(rng, population, persons)
        case = PrivacyCase(table, privacy, rng.choice(limits), rng.choice(oracle.MEASURES))
        if not is_upward_closed(case):
            return case
