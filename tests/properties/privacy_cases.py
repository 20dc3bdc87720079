"""Hypothesis strategies: small random sources with sensitive attributes, persons and populations, and requirements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from oracles.oracle import Hierarchy, Row, Value
from oracles.oracle_privacy import Record, Source
from properties import random_cases

# Names that a builder of SQL may have used itself, and one that needs quotes.
SENSITIVE = ("v", 'n"', "share")
PERSON, POPULATION_PERSON = "mover", "person's id"
LIMITS = ("0", "0.1", "0.29", "0.5")


@dataclass(frozen=True)
class PrivacyCase:
    """A source and a policy for it; ``privacy`` is the tree of the policy's section, ``limit`` a decimal text."""

    source: Source
    privacy: Mapping[str, Any]
    limit: str
    measure: str
    aggregate: str | None = None
    weights: Mapping[str, float] | None = None
    declared: bool = False
    """Whether the policy names the person column among its attributes."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``oracle_privacy.solve``."""
        return {
            "source": self.source,
            "privacy": self.privacy,
            "suppression_limit": self.limit,
            "measure": self.measure,
            "aggregate": self.aggregate,
            "weights": self.weights,
        }


# --- sources ----------------------------------------------------------------------------------------


@st.composite
def sensitive_columns(draw: st.DrawFn, n: int, tree: Hierarchy | None) -> list[Value]:
    """The values of a sensitive attribute in ``n`` rows: few different ones, NULL among them at times."""
    if tree is not None:
        all_ = random_cases.occurring(tree, unknown=False)
    else:
        all_ = [*draw(st.sampled_from([random_cases.TEXTS, random_cases.NUMBERS])), None]
    some = draw(st.lists(st.sampled_from(all_), min_size=min(len(all_), 2), max_size=4, unique=True))
    return draw(st.lists(st.sampled_from(some), min_size=n, max_size=n))


@st.composite
def persons(draw: st.DrawFn, rows: list[Row]) -> list[Value]:
    """Draw the person of a row: one for constant quasi-identifiers, or any; sometimes NULL."""
    constant = draw(st.booleans())
    combinations = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    numbers = draw(st.lists(st.integers(0, 3 if constant else 9), min_size=len(rows), max_size=len(rows)))
    if constant:
        nobody = draw(st.sampled_from([None, "nobody"]))
        return [
            nobody if (combinations[row], number) == (0, 0) else f"{combinations[row]} {number}"
            for row, number in zip(rows, numbers, strict=True)
        ]
    return [None if number == 9 else f"p{number}" for number in numbers]


@st.composite
def populations(
    draw: st.DrawFn, rows: list[Row], ids: list[Value], trees: Mapping[str, Hierarchy], with_persons: bool
) -> tuple[list[Record], str | None]:
    """Most of the source's rows, some several times, and others; some with values that their hierarchies miss."""
    person = draw(st.sampled_from([*([] if with_persons else [None]), PERSON, POPULATION_PERSON]))
    times = st.lists(st.sampled_from([1, 2, 0, 3]), min_size=len(rows), max_size=len(rows))
    people = [(row, id_) for row, id_, n in zip(rows, ids, draw(times), strict=True) for _ in range(n)]
    unknown = draw(st.sampled_from([False, False, True]))
    row_strategy = st.tuples(*(st.sampled_from(random_cases.occurring(tree, unknown)) for tree in trees.values()))
    people += [(row, f"other {i}") for i, row in enumerate(draw(st.lists(row_strategy, max_size=6)))]
    if person is not None:  # some are there under another's name
        numbers = draw(st.lists(st.integers(0, 5), min_size=len(people), max_size=len(people)))
        people = [(row, f"p{n}" if n < 2 else id_) for (row, id_), n in zip(people, numbers, strict=True)]
    records = [dict(zip(trees, row, strict=True)) | ({} if person is None else {person: id_}) for row, id_ in people]
    return records, person


def rename_top(tree: Hierarchy) -> Hierarchy:
    """The same hierarchy with another label than ``*`` at the top."""
    if tree.height == 0:
        return tree
    return Hierarchy({value: (*path[:-1], "all of them") for value, path in tree.paths.items()})


@st.composite
def sources(draw: st.DrawFn, population: bool, with_persons: bool = False) -> Source:
    """1 to 3 quasi-identifiers, 1 or 2 sensitive attributes, persons at times, or always."""
    names = draw(st.permutations(random_cases.NAMES))[: draw(st.sampled_from([2, 2, 3, 1]))]
    trees = {name: draw(random_cases.hierarchies()) for name in names}
    if population and draw(st.booleans()):  # a top label that stands for listed values alone
        trees = {name: rename_top(tree) for name, tree in trees.items()}
    rows = draw(random_cases.tables(list(trees.values())))
    sensitive: dict[str, Hierarchy | None] = {}
    columns: dict[str, list[Value]] = {}
    for name in draw(st.permutations(SENSITIVE))[: draw(st.sampled_from([1, 2]))]:
        sensitive[name] = draw(random_cases.hierarchies()) if draw(st.booleans()) else None
        columns[name] = draw(sensitive_columns(len(rows), sensitive[name]))
    person = PERSON if with_persons or draw(st.booleans()) else None
    ids: list[Value] = [f"row {i}" for i in range(len(rows))] if person is None else draw(persons(rows))
    people, population_person = draw(populations(rows, ids, trees, with_persons)) if population else (None, None)
    if person is not None:
        columns[person] = ids
    records = [
        dict(zip(trees, row, strict=True)) | {name: column[i] for name, column in columns.items()}
        for i, row in enumerate(rows)
    ]
    return Source(records, trees, sensitive, person, people, population_person)


# --- requirements -----------------------------------------------------------------------------------

Draw = Callable[..., Any]


def l_diversity(draw: Draw, source: Source) -> dict[str, Any]:
    kind = draw(st.sampled_from(["entropy", "recursive", "distinct"]))
    spec = {"attribute": draw(st.sampled_from([*source.sensitive])), "kind": kind}
    if kind == "entropy":
        spec["l"] = draw(st.sampled_from([2, 1.5, 1.2, 3, 2.5, 1]))
    else:
        spec["l"] = draw(st.sampled_from([2, 3, 1]))
    if kind == "recursive":
        spec["c"] = draw(st.sampled_from([2.0, 1.5, 3.0, 4, 1, 0.5, 1.1]))
    if len(source.sensitive) > 1 and draw(st.booleans()):
        spec["joint"] = True
    return spec


def t_closeness(draw: Draw, source: Source) -> dict[str, Any]:
    attribute = draw(st.sampled_from([*source.sensitive]))
    kinds = ["hierarchical", "ordered", "equal"] if source.sensitive[attribute] else ["ordered", "equal"]
    t = draw(st.sampled_from([0.3, 0.2, 0.4, 0.5, 0.25, 0.1, 0.7, 0.05]))
    return {"attribute": attribute, "distance": draw(st.sampled_from(kinds)), "t": t}


def delta_disclosure(draw: Draw, source: Source) -> dict[str, Any]:
    return {
        "attribute": draw(st.sampled_from([*source.sensitive])),
        "delta": draw(st.sampled_from([0.7, 1.0, 0.4, 0.25, 1.5])),
    }


def beta_likeness(draw: Draw, source: Source) -> dict[str, Any]:
    spec = {
        "attribute": draw(st.sampled_from([*source.sensitive])),
        "beta": draw(st.sampled_from([0.5, 1, 0.25, 2.0, 0.1])),
    }
    kind = draw(st.sampled_from([None, "basic", "enhanced"]))
    return spec if kind is None else {**spec, "kind": kind}


def alpha_k(draw: Draw, source: Source) -> dict[str, Any]:
    return {
        "attribute": draw(st.sampled_from([*source.sensitive])),
        "alpha": draw(st.sampled_from([0.5, 0.6, 0.4, 0.75, 1])),
    }


def draw_shield(draw: Draw, source: Source) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from([*source.quasi]), min_size=1, unique=True))
    return {"quasi": names, "k": draw(st.sampled_from([3, 4, 2, 5, 8]))}


LISTED: dict[str, Callable[[Draw, Source], dict[str, Any]]] = {
    "l_diversity": l_diversity,
    "t_closeness": t_closeness,
    "delta_disclosure": delta_disclosure,
    "beta_likeness": beta_likeness,
    "alpha_k": alpha_k,
    "k_anonymity": draw_shield,
}
SINGLE: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from([2, 3, 4, 1]),
    "k_map": st.sampled_from([2, 3, 5, 1]),
    "average_risk": st.sampled_from([0.5, 0.4, 0.3, 0.2, 1]),
    "sample_uniqueness": st.sampled_from([0.1, 0.2, 0, 0.05]),
    "delta_presence": st.fixed_dictionaries(
        {"max": st.sampled_from([1, 0.8, 0.5, 2.0])}, optional={"min": st.sampled_from([0.1, 0.25, 0.5, 0])}
    ),
    "null_map": st.fixed_dictionaries({"max": st.sampled_from([0.1, 0, 0.3, 0.5])}),
    "wrong_map": st.fixed_dictionaries({"max": st.sampled_from([0.1, 0.3, 0, 0.5])}),
}
KINDS = (*LISTED, *SINGLE)
OF_A_POPULATION = {"k_map", "delta_presence", "null_map", "wrong_map"}


@st.composite
def requirements(draw: st.DrawFn, source: Source, kinds: list[str]) -> dict[str, Any]:
    """A policy's requirements, one for each of ``kinds``."""
    privacy: dict[str, Any] = {}
    for kind in kinds:
        if kind in SINGLE:
            privacy[kind] = draw(SINGLE[kind])
        elif (spec := LISTED[kind](draw, source)) not in privacy.setdefault(kind, []):
            privacy[kind].append(spec)
    return privacy


@st.composite
def privacy_cases(draw: st.DrawFn, kind: str | None = None) -> PrivacyCase:
    """A source with one to three requirements, ``kind`` among them if that is given."""
    some = draw(st.lists(st.sampled_from(KINDS), min_size=kind is None, max_size=2 if kind else 3))
    kinds = [*([kind] if kind else []), *some]
    source = draw(sources(not OF_A_POPULATION.isdisjoint(kinds), "wrong_map" in kinds))
    measure, aggregate, weights = draw(random_cases.objectives(tuple(source.quasi)))
    return PrivacyCase(
        source=source,
        privacy=draw(requirements(source, kinds)),
        limit=draw(st.sampled_from(LIMITS)),
        measure=measure,
        aggregate=aggregate,
        weights=weights,
        declared=source.person is not None and draw(st.booleans()),
    )
