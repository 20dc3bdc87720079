"""What a value of an attribute leaks by itself, at each level of the attribute's hierarchy.

An attacker who learns that the person has a value, of share P among all, gains −log2 P bits: with equally likely rows,
that is log2 n − log2 |E|, what it takes to find one of n rows less what it takes to find one of the value's |E| rows.
Where the policy counts persons, P is the share of the persons who have the value, and a person with several values
counts for the mean as much as one with a single one (`person_sets`).
With priors P is the probability of the value, and −log2 P the relative entropy between what is believed after and
before. The mean over the values of a level, each by its share, is what the attribute leaks at that level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.statements import raw_frequency
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy
from sqlanon.risk.leakage import AttributeSets
from sqlanon.risk.levels import code_levels, resolve_attributes
from sqlanon.risk.person_sets import PersonSets
from sqlanon.risk.priors import WeightedSets, read_priors, read_shares
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.support.expressions import anonymous, cast, col, fragment, same, template, union_all

if TYPE_CHECKING:
    import duckdb

MOST_LEAKING = 10
"""At most this many values of each level are shown by themselves."""

_VALUES = template("""
    SELECT d.value, sum(c.n)::BIGINT AS rows, sum(:weight) AS weight
    FROM :coded AS c
    JOIN :dictionary AS d ON c.c0 = d.code
    GROUP BY d.value
""")
_MEMBERS = template("""
    SELECT d.value, c.who, sum(c.weight) AS weight
    FROM :coded AS c
    JOIN :dictionary AS d ON c.c0 = d.code
    GROUP BY d.value, c.who
""")
_ROWS = fragment("sum(v.rows)::BIGINT")
_SHARE_OF_ROWS = fragment("sum(v.weight)::DOUBLE / (SELECT sum(weight)::DOUBLE FROM :values)")
_PERSONS = fragment("count(DISTINCT v.who)")
_SHARE_OF_PERSONS = fragment("count(DISTINCT v.who)::DOUBLE / (SELECT count(DISTINCT who) FROM :values)")
# ``weight`` is what a value counts for in the mean: another than the share where persons have several values.
_LEVEL = template("""
    SELECT
        :level AS level,
        max(:label) AS value,
        :count AS count,
        :share AS share,
        sum(v.weight)::DOUBLE / (SELECT sum(weight)::DOUBLE FROM :values) AS weight
    FROM :values AS v
    JOIN :labels AS l ON :same
    GROUP BY :key
""")
_LABEL = fragment("CASE WHEN l.known THEN :label ELSE l.value::VARCHAR END")
_LEAKAGE = template("""
    SELECT level, value, count, share, weight, CASE WHEN share > 0 THEN abs(:log2) END AS gain
    FROM :levels AS s
""")
_LEVELS = template("""
    SELECT
        level,
        count(*),
        sum(CASE WHEN share > 0 THEN weight * gain ELSE 0 END ORDER BY weight),
        max(gain)
    FROM :leakage
    GROUP BY level
    ORDER BY level
""")
_FIRST = template("""
    SELECT level, value, count, share, gain
    FROM :leakage
    WHERE gain IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY level ORDER BY gain DESC, count, value NULLS FIRST) <= :most
    ORDER BY level, gain DESC, count, value NULLS FIRST
""")
_ORDERED = template("""
    SELECT level, value, count, share, gain
    FROM :leakage AS l
    ORDER BY level, gain DESC NULLS LAST, count, value NULLS FIRST
""")


@dataclass(frozen=True)
class ValueFigures:
    """What a value leaks.

    Attributes
    ----------
    value:
        As text; None is NULL.
    count, share:
        Its rows, or the persons who have it, and how likely it is for the person that an attacker looks for: by the
        priors, or else its share of the rows or persons.
    gain:
        What an attacker learns who learns it, in bits.
    """

    value: str | None
    count: int
    share: float
    gain: float


@dataclass(frozen=True)
class LevelLeakage:
    """What the values of a level leak.

    Attributes
    ----------
    level:
        The level: 0 is the value itself.
    values:
        The values that the table has there.
    gain, normalized:
        What the attribute leaks at this level, in bits: the mean over its values, each by its share (with persons, over
        the persons); and the share of the bits that it takes to find a row, or a person.
    highest:
        The gain of the value that leaks most.
    most_leaking:
        The ten values that leak most. They are values of the table: private.
    """

    level: int
    values: int
    gain: float
    normalized: float
    highest: float
    most_leaking: tuple[ValueFigures, ...]


@dataclass(frozen=True)
class ValueLeakage:
    """What each value of an attribute leaks, at each level of its hierarchy.

    Attributes
    ----------
    attribute:
        Its name in the policy.
    bits:
        What it takes to find a row, or a person: log2 n, or less with priors.
    levels:
        From level 0 to the top.
    counts:
        What values are counted in: persons where the policy counts them, except with priors.
    """

    attribute: str
    bits: float
    levels: tuple[LevelLeakage, ...]
    counts: Literal["rows", "persons"]
    _run: Run = field(repr=False, compare=False)
    _leakage: exp.Table = field(repr=False, compare=False)

    @property
    def values(self) -> duckdb.DuckDBPyRelation:
        """All values: a relation, for the holder's eyes, highest leakage first at each level.

        Columns: ``level``, ``value`` (as text), ``count``, ``share``, ``gain`` (NULL where the share is 0).
        """
        return self._run.engine.relation(_ORDERED(leakage=self._leakage))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: of each level the values that leak most."""
        levels = [
            {**vars(one), "most_leaking": [dict(vars(value)) for value in one.most_leaking]} for one in self.levels
        ]
        return {"attribute": self.attribute, "counts": self.counts, "bits": self.bits, "levels": levels}


def measure_value_leakage(run: Run, policy: Policy, attribute: str, shown: list[str] | None = None) -> ValueLeakage:
    """Measure what the values of an attribute leak, at each level."""
    (attribute,) = resolve_attributes(policy, "--values", attribute)
    steps, work, columns = StatementRunner(run.engine, shown), run.work, match_columns(policy, run.source)
    names = [attribute, *(name for name in read_priors(policy) if name != attribute)]
    person = None if read_priors(policy) else columns.person
    quasi = [columns.by_attribute[name] for name in names]
    types = [run.source.columns[column] for column in quasi]
    raw = steps.make(work("raw"), raw_frequency(run.source.relation, quasi, person=person))
    sets = AttributeSets(steps, work, raw, len(names), counted=True)
    (coded, _), weight, whole = sets.base, "n", sets.whole
    if shares := read_shares(steps, work, policy, names, types, sets.dictionaries):
        weighted = WeightedSets(steps, work, sets, names, shares)
        coded, weight, whole = weighted.table, "weight", weighted.whole
    query = _VALUES(weight=col(weight, "c"), coded=coded, dictionary=sets.dictionaries[0])
    values = steps.make(work("values"), query)
    counted = values
    if person is not None:
        of_persons = PersonSets(steps, work, sets, len(names), raw)
        members = _MEMBERS(coded=of_persons.coded, dictionary=sets.dictionaries[0])
        counted, whole = steps.make(work("members"), members), of_persons.whole
    labels, top = code_levels(steps, work, policy, {attribute: AttributeValues(values, types[0])})[attribute]
    lowest = 0 if policy.attributes[attribute].has_open_ends else 1
    each = union_all(*(_level(counted, labels, level, top, lowest, person is not None) for level in range(top + 1)))
    leakage = steps.make(work("leakage"), _LEAKAGE(log2=anonymous("log2", col("share")), levels=each))
    counts: Literal["rows", "persons"] = "rows" if person is None else "persons"
    return ValueLeakage(attribute, whole, _figures(steps, leakage, whole), counts, run, leakage)


def _level(
    values: exp.Table, labels: exp.Table, level: int, top: int, lowest_labelled: int, persons: bool
) -> exp.Select:
    value: exp.Expr = cast(col("value", "l"), "VARCHAR")
    if level == top:
        label = key = col(f"label_{top}", "l") if top else value
    else:
        label = _LABEL(label=col(f"label_{level}", "l")) if level >= lowest_labelled else value
        key = col(f"code_{level}", "l")
    on = same(col("value", "v"), col("value", "l"))
    count, share = (_PERSONS, _SHARE_OF_PERSONS) if persons else (_ROWS, _SHARE_OF_ROWS)
    return _LEVEL(
        level=level,
        label=label,
        count=count(),
        share=share(values=values),
        values=values,
        labels=labels,
        same=on,
        key=key,
    )


def _figures(steps: StatementRunner, leakage: exp.Table, whole: float) -> tuple[LevelLeakage, ...]:
    first: dict[int, list[ValueFigures]] = {}
    for level, *figures in steps.ask(_FIRST(leakage=leakage, most=MOST_LEAKING), []):
        first.setdefault(level, []).append(ValueFigures(*figures))
    found = steps.ask(_LEVELS(leakage=leakage), [])
    return tuple(
        LevelLeakage(
            level,
            values,
            max(gain, 0.0) + 0.0,
            max(gain, 0.0) / whole if whole else 0.0,
            highest or 0.0,
            tuple(first.get(level, ())),
        )
        for level, values, gain, highest in found
    )
