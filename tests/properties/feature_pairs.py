"""A covering array over the features of a policy: each pair of values that go together is in some row.

    python tests/properties/feature_pairs.py         the rows, and the pairs that are excluded

A row is a policy over the table that `test_feature_pairs` makes. The rows follow from `FEATURES` and the excluded
pairs, without reading a policy; a test compares `EXCLUDED` with the pairs that policies refuse.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import sqlanon
from sqlanon.errors import PolicyError
from sqlanon.policy.compatibility import EXTENSIONS, collect_sections, find_conflicts

Row: TypeAlias = dict[str, str]
"""A value of each feature."""

Value: TypeAlias = tuple[str, str]
"""A feature and a value of it."""

Pair: TypeAlias = frozenset[Value]

K = 3
LEVELS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "narrow": {"city": {"max_level": 1}, "age": {"forbidden": ["20-29"]}},
    "coarse": {"zip": {"min_level": 1}, "age": {"max_level": 2}, "city": {"forbidden": ["north"]}},
}
NORTH, SOUTH = ["Narvik", "Oslo", "Umea"], ["Bari", "Rome"]
NOISE = {"role": "quasi", "noise": {"epsilon": 2, "bounds": [0, 60], "round": 2}}


def _sensitive(key: str, **spec: Any) -> dict[str, Any]:
    return {"privacy": {key: [{"attribute": "illness", **spec}]}}


def _strategy(name: str, **search: str) -> dict[str, Any]:
    return {"search": {"strategy": name, **search}}


def _catalog(**release: Any) -> dict[str, Any]:
    return {"catalog": {"database": "catalog.duckdb"}, "release": release}


FEATURES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "strategy": {
        "optimal": {},
        "subtree": _strategy("subtree"),
        "mondrian of sets": _strategy("mondrian", summary="set", cuts="relaxed"),
        "k-similar of lists": _strategy("k-similar", summary="set", sets="list"),
    },
    "history": {
        "none": {},
        "first": _catalog(),
        "draft": _catalog(draft=True),
        "keep": _catalog(keep=2),
        "after": _catalog(after="all"),
        "extend": _catalog(),
    },
    "requirement": {
        "none": {},
        "distinct": _sensitive("l_diversity", kind="distinct", l=2),
        "closeness": _sensitive("t_closeness", distance="equal", t=0.45),
        "average risk": {"privacy": {"average_risk": 0.25}},
        "shield": {"privacy": {"k_anonymity": [{"quasi": ["zip", "age"], "k": K + 2}]}},
    },
    "population": {
        "none": {},
        "k-map": {"population": {"table": "people"}, "privacy": {"k_map": 8}},
        "presence": {"population": {"table": "people"}, "privacy": {"delta_presence": {"max": 0.6}}},
    },
    "persons": {
        "none": {"source": {"person": False}},
        "settled": {"source": {"person": "person"}},
        "moving": {"source": {"person": "person"}},
    },
    "noise": {
        "none": {},
        "noise": {"attributes": {"pay": NOISE}},
        "confidence": {"attributes": {"pay": NOISE}, "privacy": {"confidence": 0.97}},
    },
    "target": {
        "duckdb": {"release": {"database": "release.duckdb"}},
        "parquet": {"release": {"file": "release.parquet"}},
    },
    "levels": {name: {"attributes": limits} for name, limits in LEVELS.items()},
    "measure": {
        "loss": {},
        "precision": {"search": {"measure": "precision"}},
        "discernibility": {"search": {"measure": "discernibility"}},
    },
    "limit": {
        "some": {"search": {"suppression_limit": 0.3}},
        "zero": {"search": {"suppression_limit": 0}},
    },
    "suppressed": {"drop": {}, "mask": {"release": {"suppressed": "mask"}}},
    "cells": {"no": {}, "yes": {"search": {"suppression": "cells"}}},
    "decoys": {"no": {}, "yes": {"release": {"decoys": True}}},
    "weights": {"no": {}, "yes": {"attributes": {"zip": {"weight": 3.0}}}},
    "unknown": {"error": {}, "suppress": {"attributes": {"city": {"on_unknown": "suppress"}}}},
}
"""The values of each feature, as the parts that they add to a policy. The first of each is its default."""

DEFAULTS: Row = {name: next(iter(values)) for name, values in FEATURES.items()}

BASE: Mapping[str, Any] = {
    "source": {"table": "t", "key": "id"},
    "attributes": {
        "id": {"role": "identifying"},
        "person": {"role": "identifying"},
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
        "city": {"role": "quasi", "hierarchy": {"categories": {"north": NORTH, "south": SOUTH}}},
        "illness": {"role": "sensitive"},
        "pay": {"role": "identifying"},
        "note": {"role": "insensitive"},
    },
    "privacy": {"k": K, "dependencies": "warn"},
    "search": {},
    "release": {"table": "released"},
}

LOCAL = ("subtree", "mondrian of sets", "k-similar of lists")

EXCLUDED: Mapping[Value, Mapping[str, Sequence[str]]] = {
    **{
        ("strategy", name): {
            "history": ["after", "extend"],
            "requirement": ["average risk"],
            "population": ["k-map", "presence"],
            "cells": ["yes"],
            "decoys": ["yes"],
        }
        for name in LOCAL
    },
    ("history", "keep"): {"target": ["parquet"]},
    ("history", "after"): {
        "population": ["k-map", "presence"],
        "noise": ["noise", "confidence"],
        "measure": ["discernibility"],
        "suppressed": ["mask"],
        "cells": ["yes"],
    },
    ("history", "extend"): {
        "population": ["k-map", "presence"],
        "noise": ["noise", "confidence"],
        "suppressed": ["mask"],
        "cells": ["yes"],
    },
    ("cells", "yes"): {"requirement": ["average risk"], "population": ["k-map", "presence"]},
    ("population", "presence"): {"noise": ["confidence"], "suppressed": ["mask"]},
    ("noise", "confidence"): {"persons": ["settled", "moving"]},
    ("weights", "yes"): {"measure": ["discernibility"]},
    ("decoys", "yes"): {
        "history": ["after", "extend"],
        "requirement": ["distinct", "closeness", "average risk", "shield"],
        "population": ["k-map", "presence"],
        "persons": ["settled", "moving"],
        "noise": ["noise", "confidence"],
        "suppressed": ["mask"],
        "cells": ["yes"],
    },
}
"""The pairs that policies refuse, each once: a value, and the values of other features that it excludes."""


def tree_of(row: Row, folder: Path) -> dict[str, Any]:
    """The policy of a row as a tree, with its files in a folder."""
    tree: dict[str, Any] = {}
    for part in (BASE, *(FEATURES[name][value] for name, value in row.items())):
        tree = _merge(tree, part)
    for section, key in (("catalog", "database"), ("release", "database"), ("release", "file")):
        if key in tree.get(section, {}):
            tree[section] = {**tree[section], key: str(folder / tree[section][key])}
    return tree


def _merge(tree: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    keys = {key for key in tree.keys() & part.keys() if isinstance(part[key], dict)}
    return {**tree, **part, **{key: _merge(tree[key], part[key]) for key in keys}}


def refusal(row: Row, folder: Path) -> str:
    """The error message of the policy of a row, or an empty text."""
    try:
        policy = sqlanon.Policy(**tree_of(row, folder))
    except PolicyError as error:
        return str(error)
    problems = find_conflicts(EXTENSIONS, collect_sections(dict(policy))) if row["history"] == "extend" else ()
    return "; ".join(map(str, problems))


WITHOUT_EFFECT: Mapping[Value, Mapping[str, Sequence[str]]] = {
    ("noise", "confidence"): {"limit": ["zero"]},
    ("decoys", "yes"): {"limit": ["zero"]},
}
"""The pairs that policies allow but this table cannot test: it has no release with them, or no decoys."""


# --- pairs and rows


def all_pairs() -> list[Pair]:
    """Each pair of values of two features."""
    return [
        frozenset([(first, first_value), (second, second_value)])
        for first, second in itertools.combinations(FEATURES, 2)
        for first_value, second_value in itertools.product(FEATURES[first], FEATURES[second])
    ]


@cache
def excluded_pairs() -> frozenset[Pair]:
    return refused_pairs() | _pairs_in(WITHOUT_EFFECT)


def refused_pairs() -> frozenset[Pair]:
    return _pairs_in(EXCLUDED)


def _pairs_in(table: Mapping[Value, Mapping[str, Sequence[str]]]) -> frozenset[Pair]:
    return frozenset(
        frozenset([value, (name, excluded)])
        for value, features in table.items()
        for name, values in features.items()
        for excluded in values
    )


def pairs_of(row: Row) -> set[Pair]:
    return {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}


CANDIDATES = 12
"""Number of random rows from which the one with the most new pairs is taken."""

COST: Mapping[Value, float] = {
    ("strategy", "subtree"): 2,
    ("strategy", "mondrian of sets"): 2,
    ("strategy", "k-similar of lists"): 4,
    **{("history", name): 1 for name in ("first", "draft")},
    **{("history", name): 4 for name in ("keep", "after", "extend")},
    ("target", "duckdb"): 1,
}
"""The approximate cost of a value, where a row of other values costs 1."""


@cache
def covering_rows(seed: int = 10) -> tuple[Row, ...]:
    """Rows that cover each pair that is not excluded, ordered by new pairs per cost."""
    rows = _draw_rows(random.Random(seed))
    ordered: list[Row] = []
    missing = {*all_pairs()}
    while rows:
        ordered.append(max(rows, key=lambda row: len(pairs_of(row) & missing) / _cost(row)))
        rows.remove(ordered[-1])
        missing -= pairs_of(ordered[-1])
    return tuple(ordered)


def _cost(row: Row) -> float:
    return 1 + sum(COST.get(value, 0) for value in row.items())


def _draw_rows(draw: random.Random) -> list[Row]:
    rows: list[Row] = []
    left = [pair for pair in all_pairs() if pair not in excluded_pairs()]
    while left:
        missing = set(left)
        candidates = [_draw_row(draw, missing, draw.choice(left)) for _ in range(CANDIDATES)]
        rows.append(max(candidates, key=lambda row: len(pairs_of(row) & missing)))
        left = [pair for pair in left if pair not in pairs_of(rows[-1])]
    return rows


def _draw_row(draw: random.Random, missing: set[Pair], first: Pair) -> Row:
    """A row with this pair; every other feature, in random order, gets the value that adds the most missing pairs."""
    row = dict(sorted(first))
    for name in draw.sample(names := [name for name in FEATURES if name not in row], len(names)):
        new = {value: set(_pairs_with(row, name, value)) for value in FEATURES[name]}
        allowed = [value for value, pairs in new.items() if not pairs & excluded_pairs()]
        row[name] = max(allowed, key=lambda value: (len(new[value] & missing), draw.random()))
    return {name: row[name] for name in FEATURES}


def _pairs_with(row: Row, name: str, value: str) -> Iterator[Pair]:
    return (frozenset([(name, value), item]) for item in row.items())


def describe(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if value != DEFAULTS[name]) or "the defaults"


if __name__ == "__main__":
    rows = covering_rows()
    for i, row in enumerate(rows):
        new = pairs_of(row).difference(*map(pairs_of, rows[:i]))
        print(f"{i:3} {len(new):4} new pairs: {describe(row)}")
    print(f"{len(rows)} rows, {len(all_pairs())} pairs, {len(excluded_pairs())} excluded")
