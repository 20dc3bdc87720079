"""Checking the requirements of a policy on a relation, with the macro library: nothing here is the search's.

A release alone shows its rows: who they are of, how the source is distributed, and a population it does not show.
What needs these is not verifiable alone; with `Private` views it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.policy import LDiversity, PrivacySection, TCloseness
from sqlanon.release import macros
from sqlanon.release.check import Check
from sqlanon.requirements import sensitive_attributes
from sqlanon.requirements.base import TOLERANCE, plain
from sqlanon.requirements.whole_table import PopulationUniqueness


@dataclass(frozen=True)
class Private:
    """What only the data holder has, as relations by their text.

    Attributes
    ----------
    source:
        The source, with its sensitive columns and its person column.
    person:
        The person column, or None; then the relation that is checked has it too.
    population, population_person:
        The population, generalized as the release is, and its person column; or None.
    hierarchies:
        Of sensitive attributes, by attribute: ``level_0`` to the top.
    """

    source: str
    person: str | None = None
    population: str | None = None
    population_person: str | None = None
    hierarchies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Audited:
    """What is checked.

    Attributes
    ----------
    engine, macros:
        Where, and the database that has the macro library (None: the one in use).
    relation:
        The released rows, by their text.
    quasi, sensitive:
        The columns of these roles.
    rows:
        Of the source.
    persons:
        Whether the policy counts persons.
    private:
        What only the data holder has; None: the release alone.
    combinations:
        Where k-anonymity is guaranteed of some quasi-identifiers at a time: which; else empty.
    """

    engine: Engine
    relation: str
    quasi: Sequence[str]
    sensitive: Sequence[str]
    rows: int
    persons: bool = False
    macros: str | None = None
    private: Private | None = None
    combinations: Sequence[Sequence[str]] = ()

    @property
    def shows_counts(self) -> bool:
        """Whether what requirements count can be seen: rows always, persons with their ids only."""
        return not self.persons or self.private is not None

    @property
    def person(self) -> str | None:
        """The person column, where there is one to be seen."""
        return self.private.person if self.private is not None else None

    def figures(self, macro: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The one row of a macro, by name."""
        query = macros.macro_of(macro, self.relation, *arguments, catalog=self.macros, **options)
        names = macros.FIGURES[macro]
        rows = self.engine.rows(query)
        return dict(zip(names, rows[0], strict=True)) if rows else dict.fromkeys(names)


def needs_source(section: PrivacySection, persons: bool) -> bool:
    """Whether a release alone cannot show that it meets the requirements."""
    alone = {"k", "k_anonymity", "l_diversity", "alpha_k", "average_risk", "sample_uniqueness", "population_uniqueness"}
    return persons or not alone >= section.requirements.keys()


def requirement_checks(section: PrivacySection, audited: Audited) -> list[Check]:
    """Check each requirement."""
    found = []
    if section.k is not None:
        found += _of_all(audited, section.k) if not audited.combinations else _of_combinations(audited, section.k)
    for shield in section.k_anonymity:
        name = f"{shield.k}-anonymity of {', '.join(shield.quasi)}"
        found.append(_anonymity(audited, name, shield.k, shield.quasi))
    found += [_diversity(audited, one) for one in section.l_diversity]
    found += [_closeness(audited, one) for one in section.t_closeness]
    found += _of_shares(section, audited)
    found += _of_population(section, audited)
    return found + _of_table(section, audited)


def _of_all(audited: Audited, k: int) -> list[Check]:
    return [_anonymity(audited, f"{k}-anonymity", k, audited.quasi)]


def _of_combinations(audited: Audited, k: int) -> list[Check]:
    """Each combination that is guaranteed; and what is not: all quasi-identifiers together."""
    found = [_anonymity(audited, f"{k}-anonymity of {', '.join(some)}", k, some) for some in audited.combinations]
    (whole,) = _of_all(audited, k)
    if whole.passed:
        return [*found, whole]
    message = f"not guaranteed: over all quasi-identifiers together {whole.message}; who knows more of a person than a "
    return [*found, replace(whole, passed=None, message=message + "combination may single it out")]


def unknown_names(section: PrivacySection, audited: Audited) -> str:
    """What requirements look at, and is no sensitive column, or no quasi-identifier, of what is checked."""
    sensitive, quasi = ({name.lower() for name in names} for names in (audited.sensitive, audited.quasi))
    wrong = [name for name in sensitive_attributes(section) if name.lower() not in sensitive]
    wrong += [name for shield in section.k_anonymity for name in shield.quasi if name.lower() not in quasi]
    return ", ".join(map(repr, dict.fromkeys(wrong)))


def requirement_queries(section: PrivacySection, audited: Callable[[Engine], Audited]) -> list[exp.Expr]:
    """The queries of `requirement_checks`; none is run."""
    recorder = _Recorder()
    requirement_checks(section, audited(recorder))
    return recorder.queries


class _Recorder:
    """An engine that runs nothing: it keeps the queries, and every answer is empty."""

    dialect = "duckdb"

    def __init__(self) -> None:
        self.queries: list[exp.Expr] = []

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        self.queries.append(statement)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.queries.append(query)
        return []

    def shown(self, statement: exp.Expr) -> str:
        return statement.sql(self.dialect)

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        return {}


def _anonymity(audited: Audited, name: str, required: int, quasi: Sequence[str]) -> Check:
    macro, options = ("person_k_anonymity", [audited.person]) if audited.person else ("k_anonymity", [])
    k = audited.figures(macro, list(quasi), *options)["k"] or 0
    unit = "persons" if audited.person else "rows"
    message = f"the smallest class has {k} {unit}, {required} are required"
    if not audited.shows_counts and k >= required:
        return Check(name, None, f"not verifiable alone: {required} persons are required; {message}")
    return Check(name, k >= required, message)


def _diversity(audited: Audited, asked: LDiversity) -> Check:
    joint = [name for name in audited.sensitive if name.lower() != asked.attribute.lower()] if asked.joint else []
    options = {"person": audited.person} if audited.person else {}
    whole = math.floor(asked.l)
    found = audited.figures("l_diversity", [*audited.quasi, *joint], asked.attribute, l=max(whole, 1), **options)
    kind = f"{'joint ' if asked.joint else ''}{asked.kind}"
    if asked.kind == "recursive":
        name = f"{kind} ({plain(asked.c or 0)}, {asked.l})-diversity of {asked.attribute}"
        least, holds = found["recursive_c"], whole == 1 or _number(found["recursive_c"]) < _number(asked.c)
        message = f"in the worst class r1 is {_number(least):.6g} times the sum of the rarer counts"
    else:
        name = f"{kind} {plain(asked.l)}-diversity of {asked.attribute}"
        least = found["distinct_l" if asked.kind == "distinct" else "entropy_l"]
        holds = math.log(max(_number(least), 1.0)) >= math.log(asked.l) - TOLERANCE
        message = f"the worst class has {_number(least):.6g}, {plain(asked.l)} are required"
    if not audited.shows_counts and asked.kind != "distinct" and _number(found["distinct_l"]) >= asked.l:
        return Check(name, None, f"not verifiable alone: it counts persons; in rows, {message}")
    return Check(name, bool(holds), message)


def _closeness(audited: Audited, asked: TCloseness) -> Check:
    name = f"{asked.distance} {plain(asked.t)}-closeness of {asked.attribute}"
    options: dict[str, Any] = {"distance": asked.distance}
    if asked.distance == "hierarchical":
        if audited.private is None:
            return Check(name, None, "not verifiable alone: it needs the source and the attribute's hierarchy")
        options["hierarchy"] = audited.private.hierarchies[asked.attribute]
    t = _number(_against_source(audited, "t_closeness", asked.attribute, **options)["t"])
    message = f"the farthest class is {t:.6g} from the table, {plain(asked.t)} is allowed"
    return _beside_source(audited, name, t <= asked.t + TOLERANCE, message)


def _of_shares(section: PrivacySection, audited: Audited) -> list[Check]:
    found = []
    for delta in section.delta_disclosure:
        worst = _number(_against_source(audited, "delta_disclosure", delta.attribute)["delta"])
        name = f"{plain(delta.delta)}-disclosure privacy of {delta.attribute}"
        message = f"the greatest |ln(p/q)| is {worst:.6g}, {plain(delta.delta)} is allowed"
        found.append(_beside_source(audited, name, worst <= delta.delta + TOLERANCE, message))
    for beta in section.beta_likeness:
        figures = _against_source(audited, "beta_likeness", beta.attribute)
        gain, excess = _number(figures["beta"]), _number(figures["enhanced_excess"])
        holds = gain <= beta.beta + TOLERANCE and (beta.kind == "basic" or excess <= TOLERANCE)
        name = f"{beta.kind} {plain(beta.beta)}-likeness of {beta.attribute}"
        message = f"the greatest gain of a value is {gain:.6g}, {plain(beta.beta)} is allowed"
        if beta.kind == "enhanced":
            message += f"; beyond -ln q by {excess:.6g}"
        found.append(_beside_source(audited, name, holds, message))
    for alpha in section.alpha_k:
        options = {"person": audited.person} if audited.person else {}
        share = _number(audited.figures("alpha", list(audited.quasi), alpha.attribute, **options)["alpha"])
        name = f"share of at most {plain(alpha.alpha)} of each {alpha.attribute}"
        message = f"the greatest share is {share:.6g}"
        # So many values are needed, whoever has them.
        values = _number(audited.figures("l_diversity", list(audited.quasi), alpha.attribute)["distinct_l"])
        if audited.shows_counts or 1 / values > alpha.alpha + TOLERANCE:
            found.append(Check(name, audited.shows_counts and share <= alpha.alpha + TOLERANCE, message))
        else:
            found.append(Check(name, None, f"not verifiable alone: it counts persons; in rows, {message}"))
    return found


def _of_population(section: PrivacySection, audited: Audited) -> list[Check]:
    found = []
    presence = section.delta_presence
    private = audited.private
    names = {}
    if section.k_map is not None:
        names["k_map"] = f"{section.k_map}-map"
    if presence is not None:
        names["presence"] = f"({plain(presence.min)}, {plain(presence.max)})-presence"
    if private is None or private.population is None:
        return [Check(name, None, "not verifiable alone: it needs the population") for name in names.values()]
    options: dict[str, Any] = {}
    if private.population_person is not None:
        options["population_person"] = private.population_person
    if section.k_map is not None:
        k = audited.figures("k_map", list(audited.quasi), private.population, **options)["k"] or 0
        message = f"a class matches at least {k} of the population, {section.k_map} are required"
        found.append(Check(names["k_map"], k >= section.k_map, message))
    if presence is not None:
        if audited.person:
            options["person"] = audited.person
        shares = audited.figures("delta_presence", list(audited.quasi), private.population, **options)
        least, most = _number(shares["min"]), _number(shares["max"])
        holds = most <= presence.max + TOLERANCE and (not presence.min or least >= presence.min - TOLERANCE)
        message = f"the shares of the population's classes are {least:.6g} to {most:.6g}"
        found.append(Check(names["presence"], holds, message))
    return found


def _of_table(section: PrivacySection, audited: Audited) -> list[Check]:
    found = []
    options = {"person": audited.person} if audited.person else {}
    limits = {"average risk": section.average_risk, "sample uniqueness": section.sample_uniqueness}
    if any(limit is not None for limit in limits.values()):
        figures = audited.figures("average_risk", list(audited.quasi), **options)
        for name, limit in limits.items():
            if limit is not None:
                value = _number(figures[name.replace(" ", "_")])
                check = Check(f"{name} of at most {plain(limit)}", value <= limit + TOLERANCE, f"it is {value:.6g}")
                found.append(check if audited.shows_counts else _of_persons(check))
    unique = section.population_uniqueness
    if unique is not None:
        query = macros.class_sizes_of(audited.relation, audited.quasi, audited.person, audited.macros)
        one = PopulationUniqueness(unique.limit, unique.estimator, unique.population, unique.sampling_fraction)
        value = one.estimate(dict(audited.engine.rows(query)), _counted(audited))
        name = f"population uniqueness of at most {plain(unique.limit)} ({unique.estimator})"
        check = Check(name, value <= unique.limit + TOLERANCE, f"the estimate is {value:.6g}")
        found.append(check if audited.shows_counts else _of_persons(check))
    return found


def _counted(audited: Audited) -> int:
    """The rows, or persons, of the source."""
    if not audited.person or audited.private is None:
        return audited.rows
    source = replace(audited, relation=audited.private.source)
    return source.figures("person_k_anonymity", list(audited.quasi), audited.person)["persons"] or 0


def _against_source(audited: Audited, macro: str, attribute: str, **options: Any) -> dict[str, Any]:
    if audited.private is not None:
        options["reference"] = audited.private.source
        if audited.person:
            options["person"] = audited.person
    return audited.figures(macro, list(audited.quasi), attribute, **options)


def _beside_source(audited: Audited, name: str, holds: bool, message: str) -> Check:
    if audited.private is not None:
        return Check(name, holds, message)
    return Check(name, None, f"not verifiable alone: against the release's own distribution, {message}")


def _of_persons(check: Check) -> Check:
    return replace(check, passed=None, message=f"not verifiable alone: it counts persons; in rows, {check.message}")


def _number(value: Any) -> float:
    """A figure of a macro. There is none of no rows: nothing is met then."""
    return math.nan if value is None else float(value)
