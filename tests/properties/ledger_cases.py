"""Hypothesis strategies: a small source, one or two releases of it, changes of its rows, and the next policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from oracles.oracle import Value
from oracles.oracle_privacy import Record, Source
from properties import privacy_cases, random_cases

KEY = 'id "of" it'
PERSON = privacy_cases.PERSON
FULL_DOMAIN = (
    "optimal",
    "k_minimal",
    "samarati",
    "samarati-binary",
    "incognito",
    "ola",
    "flash",
    "datafly",
)
OF_EACH = {  # requirements of each
    "k_minimal": ("height", "relative_height", "suppression"),
    "samarati": ("height", "relative_height", "suppression"),
    "samarati-binary": ("height", "relative_height", "suppression"),
}
MEASURES = ("loss", "precision", "height", "relative_height", "suppression", "entropy")
"""Those that count no classes."""


@dataclass(frozen=True)
class Asked:
    """A policy, but for its levels.

    Attributes
    ----------
    levels:
        By quasi-identifier: the one level that it may have; None: any.
    shown:
        Other columns that are released as they are, quasi-identifiers elsewhere; the sensitive ones always are.
    sensitive:
        Which of them.
    """

    levels: Mapping[str, int | None]
    shown: Sequence[str]
    sensitive: Sequence[str]
    privacy: Mapping[str, Any]
    limit: str = "1"
    parquet: bool = False
    measure: str = "loss"
    aggregate: str | None = None
    weights: Mapping[str, float] | None = None
    strategy: str = "optimal"


@dataclass(frozen=True)
class LedgerCase:
    """A source, its releases, and its rows before each of them and before the last."""

    source: Source
    firsts: Sequence[Asked]
    tables: Sequence[list[Record]]
    last: Asked
    keyed: bool = False

    def at(self, i: int) -> Source:
        """The source before release i; the last one is number ``len(firsts)``."""
        return replace(self.source, rows=self.tables[i])


@st.composite
def later(draw: st.DrawFn, rows: list[Record], source: Source, number: int) -> list[Record]:
    """The rows with some removed, some changed, and some new ones, similar to others or not."""
    kind = draw(st.sampled_from(["add", "nothing", "delete", "update", "all"]))
    changed_rows = [dict(row) for row in rows]
    if kind in ("delete", "all") and changed_rows:
        gone = set(draw(st.lists(st.integers(0, len(changed_rows) - 1), max_size=4)))
        changed_rows = [row for j, row in enumerate(changed_rows) if j not in gone]
    if kind in ("update", "all") and changed_rows:
        for j in draw(st.lists(st.integers(0, len(changed_rows) - 1), max_size=3)):
            column = draw(st.sampled_from([*source.quasi, *source.sensitive]))
            changed_rows[j][column] = draw(st.sampled_from([row[column] for row in rows]))
    if kind in ("add", "all") and rows:
        for j in draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6)):
            new = dict(rows[j])
            if draw(st.integers(0, 2)) == 0:
                column = draw(st.sampled_from([*source.quasi, *source.sensitive]))
                new[column] = draw(st.sampled_from([row[column] for row in rows]))
            changed_rows += [dict(new) for _ in range(draw(st.integers(1, 3)))]
    ids = {row[KEY] for row in rows}
    seen: set[Value] = set()
    for j, row in enumerate(changed_rows):
        if row[KEY] in seen or row[KEY] not in ids:
            row[KEY] = f"{number}.{j}"
        seen.add(row[KEY])
    return list(changed_rows)


@st.composite
def firsts(draw: st.DrawFn, source: Source) -> Asked:
    """An earlier release: some of the quasi-identifiers at one level each, others shown as they are or left out."""
    names = draw(st.lists(st.sampled_from([*source.quasi]), min_size=1, unique=True))
    unused = [name for name in source.quasi if name not in names]
    levels: dict[str, int | None] = {}
    for name in names:
        height = source.quasi[name].height
        levels[name] = draw(st.sampled_from(sorted({min(1, height), 0, height})))
    visible = draw(st.lists(st.sampled_from(unused), unique=True, max_size=1)) if unused else []
    sensitive = draw(st.sampled_from([[*source.sensitive], [*source.sensitive], [*source.sensitive][:1]]))
    k = draw(st.sampled_from([2, 3, 2, 4, 1]))
    return Asked(levels, visible, sensitive, {"k": k}, parquet=draw(st.integers(0, 3)) == 0)


@st.composite
def lasts(draw: st.DrawFn, source: Source, fixed: bool) -> Asked:
    """The next policy."""
    names = draw(st.lists(st.sampled_from([*source.quasi]), min_size=1, unique=True))
    request = draw(firsts(source))
    if not fixed:
        request = replace(request, levels=dict.fromkeys(names), shown=())
    part = replace(
        source,
        quasi={name: source.quasi[name] for name in request.levels},
        sensitive={name: source.sensitive[name] for name in request.sensitive},
    )
    privacy: dict[str, Any] = {"k": draw(st.sampled_from([2, 3, 2, 4]))}
    kinds = draw(st.sampled_from([[], [], [], ["l_diversity"], ["t_closeness"], ["k_anonymity"], ["alpha_k"]]))
    privacy |= draw(privacy_cases.requirements(part, kinds))
    if kinds and kinds[0] in ("l_diversity", "t_closeness") and draw(st.booleans()):
        del privacy["k"]
    if fixed:
        return replace(request, privacy=privacy)
    strategy = draw(st.sampled_from(["optimal", *FULL_DOMAIN]))
    measure = draw(st.sampled_from(OF_EACH.get(strategy, MEASURES)))
    aggregate, weights = None, None
    if measure in ("loss", "precision"):
        aggregate = draw(st.sampled_from([None, *random_cases.AGGREGATES]))
        if aggregate not in ("geometric", "max") and draw(st.booleans()):
            weight = st.sampled_from([0.5, 2.0, 3.0])
            weights = draw(st.dictionaries(st.sampled_from(names), weight, min_size=1))
    return replace(
        request,
        privacy=privacy,
        limit=draw(st.sampled_from(["1", "0.5", "0.29", "0.1"])),
        measure=measure,
        aggregate=aggregate,
        weights=weights,
        strategy=strategy,
    )


@st.composite
def ledger_cases(draw: st.DrawFn, fixed: bool = False, most: int = 2) -> LedgerCase:
    """A source of 1 to 3 quasi-identifiers that is released once or twice, changes in between, and is to be released.

    ``fixed``: the last release has one level each, so that what it shows is known.
    """
    source = draw(privacy_cases.sources(population=False))
    rows = [{**row, KEY: f"r{j}"} for j, row in enumerate(source.rows)]
    known_rows = [row for row in rows if all(tree.knows(row[name]) for name, tree in source.quasi.items())]
    person = None if fixed or draw(st.integers(0, 3)) else source.person
    source = replace(source, rows=known_rows, person=person)
    requests = [draw(firsts(source)) for _ in range(draw(st.integers(1, most)))]
    tables = [known_rows]
    for i in range(len(requests)):
        tables.append(draw(later(tables[-1], source, i)))
    return LedgerCase(source, requests, tables, draw(lasts(source, fixed)), keyed=draw(st.integers(0, 3)) == 0)
