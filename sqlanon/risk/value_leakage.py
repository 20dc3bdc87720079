"""The leakage of single values of an attribute, at each level of its hierarchy.

An attacker who learns that the person has a value with the share P gains −log2 P bits: with equally likely rows, that
is log2 n − log2 |E|, the bits that it takes to find one of n rows minus those to find one of the value's |E| rows. If
the policy counts persons, P is the share of the persons with the value, and a person with several values counts for the
mean as much as one with a single value (`person_sets`). With priors, P is the probability of the value, and −log2 P the
relative entropy between the beliefs after and before. The mean over the values of a level, weighted by their shares, is
the leakage of the attribute at that level.
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
from sqlanon.risk.person_sets import person_sets
from sqlanon.risk.priors import read_priors, read_shares, weighted_sets
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.support.expressions import anonymous, cast, col, fragment, null_safe_equal, template, union_all

if TYPE_CHECKING:
    import duckdb

MAX_SHOWN_VALUES = 10
"""Greatest number of values of each level that are shown by themselves."""

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
_MOST_LEAKING = template("""
    SELECT level, value, count, share, gain
    FROM :leakage
    WHERE gain IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY level ORDER BY gain DESC, count, value NULLS FIRST) <= :most
    ORDER BY level, gain DESC, count, value NULLS FIRST
""")
_ALL_VALUES = template("""
    SELECT level, value, count, share, gain
    FROM :leakage AS l
    ORDER BY level, gain DESC NULLS LAST, count, value NULLS FIRST
""")


@dataclass(frozen=True)
class ValueFigures:
    """The leakage of a value.

    Attributes
    ----------
    value:
        As text; None is NULL.
    count, share:
        Its rows, or the persons who have it, and its probability for the person that an attacker searches: by the
        priors, or else its share of the rows or persons.
    gain:
        The gain of an attacker who learns it, in bits.
    """

    value: str | None
    count: int
    share: float
    gain: float


@dataclass(frozen=True)
class LevelLeakage:
    """The leakage of the values of a level.

    Attributes
    ----------
    level:
        The level: 0 is the value itself.
    values:
        The number of values of the table at this level.
    gain, normalized:
        The leakage of the attribute at this level, in bits: the mean over its values, weighted by their shares (with
        persons, over the persons); and the share of the bits that it takes to find a row, or a person.
    highest:
        The gain of the most leaking value.
    most_leaking:
        The ten most leaking values. They are private values of the table.
    """

    level: int
    values: int
    gain: float
    normalized: float
    highest: float
    most_leaking: tuple[ValueFigures, ...]


@dataclass(frozen=True)
class ValueLeakage:
    """The leakage of each value of an attribute, at each level of its hierarchy.

    Attributes
    ----------
    attribute:
        Its name in the policy.
    bits:
        The bits that it takes to find a row, or a person: log2 n, or less with priors.
    levels:
        From level 0 to the top.
    counts:
        The unit of counts: persons if the policy counts them, except with priors.
    """

    attribute: str
    bits: float
    levels: tuple[LevelLeakage, ...]
    counts: Literal["rows", "persons"]
    _run: Run = field(repr=False, compare=False)
    _leakage: exp.Table = field(repr=False, compare=False)

    @property
    def values(self) -> duckdb.DuckDBPyRelation:
        """All values as a relation, for the data holder only: highest leakage first at each level.

        Columns: ``level``, ``value`` (as text), ``count``, ``share``, ``gain`` (NULL where the share is 0).
        """
        return self._run.engine.relation(_ALL_VALUES(leakage=self._leakage))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON, with the most leaking values of each level."""
        levels = [
            {**vars(level), "most_leaking": [dict(vars(value)) for value in level.most_leaking]}
            for level in self.levels
        ]
        return {"attribute": self.attribute, "counts": self.counts, "bits": self.bits, "levels": levels}


def measure_value_leakage(runner: StatementRunner, run: Run, policy: Policy, attribute: str) -> ValueLeakage:
    """Measure what the values of an attribute leak, at each level."""
    (attribute,) = resolve_attributes(policy, "--values", attribute)
    work, columns = run.work, match_columns(policy, run.source)
    names = [attribute, *(name for name in read_priors(policy) if name != attribute)]
    person = None if read_priors(policy) else columns.person
    quasi = [columns.by_attribute[name] for name in names]
    types = [run.source.columns[column] for column in quasi]
    raw = runner.create_table(work("raw"), raw_frequency(run.source.relation, quasi, person=person))
    sets = AttributeSets(runner, work, raw, len(names), has_counts=True)
    (coded, _), weight, whole = sets.base, "row_count", sets.whole
    if shares := read_shares(runner, work, policy, names, types, sets.dictionaries):
        weighted = weighted_sets(work, sets, names, shares)
        coded, weight, whole = weighted.table, "weight", weighted.whole
    query = template("""
        SELECT d.value, sum(c.row_count)::BIGINT AS rows, sum(:weight) AS weight
        FROM :coded AS c
        JOIN :dictionary AS d ON c.c0 = d.code
        GROUP BY d.value
    """)(weight=col(weight, "c"), coded=coded, dictionary=sets.dictionaries[0])
    values = runner.create_table(work("leaking_values"), query)
    value_table = values
    if person is not None:
        sets_of_persons = person_sets(work, sets, raw)
        members = template("""
            SELECT d.value, c.who, sum(c.weight) AS weight
            FROM :coded AS c
            JOIN :dictionary AS d ON c.c0 = d.code
            GROUP BY d.value, c.who
        """)(coded=sets_of_persons.table, dictionary=sets.dictionaries[0])
        value_table, whole = runner.create_table(work("leaking_members"), members), sets_of_persons.whole
    labels, top = code_levels(runner, work, policy, {attribute: AttributeValues(values, types[0])})[attribute]
    lowest = 0 if policy.attributes[attribute].has_open_ends else 1
    levels = (_level_query(value_table, labels, level, top, lowest, person is not None) for level in range(top + 1))
    query = template("""
        SELECT level, value, count, share, weight, CASE WHEN share > 0 THEN abs(:log2) END AS gain
        FROM :levels AS s
    """)(log2=anonymous("log2", col("share")), levels=union_all(*levels))
    leakage = runner.create_table(work("leakage"), query)
    counts: Literal["rows", "persons"] = "rows" if person is None else "persons"
    return ValueLeakage(attribute, whole, _read_levels(runner, leakage, whole), counts, run, leakage)


def _level_query(
    values: exp.Table, labels: exp.Table, level: int, top: int, lowest_labelled: int, persons: bool
) -> exp.Select:
    value: exp.Expr = cast(col("value", "l"), "VARCHAR")
    if level == top:
        label = key = col(f"label_{top}", "l") if top else value
    else:
        label = (
            fragment("CASE WHEN l.known THEN :label ELSE l.value::VARCHAR END")(label=col(f"label_{level}", "l"))
            if level >= lowest_labelled
            else value
        )
        key = col(f"code_{level}", "l")
    if persons:
        count = fragment("count(DISTINCT v.who)")()
        share = fragment("count(DISTINCT v.who)::DOUBLE / (SELECT count(DISTINCT who) FROM :values)")(values=values)
    else:
        count = fragment("sum(v.rows)::BIGINT")()
        share = fragment("sum(v.weight)::DOUBLE / (SELECT sum(weight)::DOUBLE FROM :values)")(values=values)
    # ``weight`` is the weight of a value in the mean; it is not the share if persons have several values.
    return template("""
        SELECT
            :level AS level,
            max(:label) AS value,
            :count AS count,
            :share AS share,
            sum(v.weight)::DOUBLE / (SELECT sum(weight)::DOUBLE FROM :values) AS weight
        FROM :values AS v
        JOIN :labels AS l ON :same
        GROUP BY :key
    """)(
        level=level,
        label=label,
        count=count,
        share=share,
        values=values,
        labels=labels,
        same=null_safe_equal(col("value", "v"), col("value", "l")),
        key=key,
    )


def _read_levels(runner: StatementRunner, leakage: exp.Table, whole: float) -> tuple[LevelLeakage, ...]:
    most_leaking: dict[int, list[ValueFigures]] = {}
    for level, *figures in runner.fetch_rows(_MOST_LEAKING(leakage=leakage, most=MAX_SHOWN_VALUES), []):
        most_leaking.setdefault(level, []).append(ValueFigures(*figures))
    return tuple(
        LevelLeakage(
            level,
            values,
            max(gain, 0.0) + 0.0,
            max(gain, 0.0) / whole if whole else 0.0,
            highest or 0.0,
            tuple(most_leaking.get(level, ())),
        )
        for level, values, gain, highest in runner.fetch_rows(_LEVELS(leakage=leakage), [])
    )
