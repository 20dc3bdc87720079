"""The source as it stands, as classes of the level 0: each distinct combination of quasi-identifiers is a class.

The classes, their figures and the conditions on them are the search's own. This module makes the frequency set of that
one generalization, without hierarchies: values stand for codes. Where requirements need sensitive values, classes are
joined to them; there each combination gets a number, which then is the only quasi-identifier: numbers have no NULLs.

No person is in two rows of such a frequency set that end in one class: persons add up.

Names of columns as in `frequency.statements`, `coding` and `frequency.distribution`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import all_of, cast, col, fragment, named, same, template
from sqlanon.frequency.sets import ClassSpace
from sqlanon.frequency.statements import quasi_columns
from sqlanon.requirements.base import ClassCondition
from sqlanon.search.classes import classes

_EVERY_ROW = template("SELECT :quasi, 1 AS n FROM :source")
# Each person has one row for each of its combinations.
_POPULATION_PERSONS = template("SELECT :quasi, 1 AS population FROM :raw")
_POPULATION_ROWS = template("SELECT :quasi, n AS population FROM :raw")

_COMBINATIONS = template("SELECT DISTINCT :quasi FROM :raw")
_COMBINATIONS_OF_BOTH = fragment("""
    SELECT DISTINCT :quasi FROM :raw
    UNION
    SELECT :quasi FROM :population
""")
_NUMBERED = template("SELECT :quasi, row_number() OVER () AS number FROM :combinations AS d")
_WITH_NUMBERS = template("""
    SELECT c.number AS q0, :columns
    FROM :rows AS r
    JOIN :numbers AS c ON :same
""")

# A class without rows is the population's alone.
_FIGURES = template("""
    SELECT
        coalesce(sum(class_size)::BIGINT, 0) AS rows,
        count(*) FILTER (WHERE class_size > 0) AS classes,
        coalesce(min(class_size) FILTER (WHERE class_size > 0), 0) AS smallest_class,
        count(*) FILTER (WHERE class_size > 0 AND class_size = 1) AS uniques,
        coalesce(sum(class_count)::BIGINT, 0) AS count,
        coalesce(min(class_count) FILTER (WHERE class_size > 0), 0) AS smallest_count,
        count(*) FILTER (WHERE class_size > 0 AND class_count = 1) AS singles,
        :broken
    FROM (SELECT *, :breaks FROM :classes AS c) AS j
""")
_BREAKS = fragment("class_size > 0 AND NOT coalesce((:condition), FALSE)")
_BROKEN_CLASSES = fragment("count(*) FILTER (WHERE :breaks)")
_BROKEN_ROWS = fragment("coalesce(sum(class_size) FILTER (WHERE :breaks)::BIGINT, 0)")
_ABSENT = fragment("count(*) FILTER (WHERE class_population > 0 AND NOT (class_size > 0))")

_FIGURES_BY_SIZE = template("""
    SELECT
        coalesce(sum(classes * class_size)::BIGINT, 0) AS rows,
        coalesce(sum(classes)::BIGINT, 0) AS classes,
        coalesce(min(class_size), 0) AS smallest_class,
        coalesce(sum(classes) FILTER (WHERE class_size = 1)::BIGINT, 0) AS uniques,
        coalesce(sum(classes * class_size)::BIGINT, 0) AS count,
        coalesce(min(class_size), 0) AS smallest_count,
        coalesce(sum(classes) FILTER (WHERE class_size = 1)::BIGINT, 0) AS singles,
        :broken
    FROM (
        SELECT *, :breaks
        FROM (SELECT n::BIGINT AS class_size, n::BIGINT AS class_count, classes::BIGINT AS classes FROM :sizes) AS c
    ) AS j
""")
_BREAKS_BY_SIZE = fragment("NOT coalesce((:condition), FALSE)")
_BROKEN_CLASSES_BY_SIZE = fragment("coalesce(sum(classes) FILTER (WHERE :breaks)::BIGINT, 0)")
_BROKEN_ROWS_BY_SIZE = fragment("coalesce(sum(classes * class_size) FILTER (WHERE :breaks)::BIGINT, 0)")

_SIZES = template("""
    SELECT class_count, count(*), sum(class_size)::BIGINT
    FROM :classes AS c
    WHERE class_size > 0
    GROUP BY class_count
""")
_POPULATION_SIZES = template("""
    SELECT class_population, count(*), sum(class_count)::BIGINT, sum(class_size)::BIGINT
    FROM :classes AS c
    WHERE class_size > 0
    GROUP BY class_population
""")


def every_row(source: exp.Table, quasi: Sequence[str]) -> exp.Select:
    """The source's quasi-identifiers, row by row: for what groups them itself.

    >>> from sqlanon.expressions import table
    >>> every_row(table("patients"), ["zip", "age"]).sql("duckdb")
    'SELECT "zip" AS "q0", "age" AS "q1", 1 AS "n" FROM "patients"'
    """
    return _EVERY_ROW(quasi=[named(col(name), f"q{i}") for i, name in enumerate(quasi)], source=source)


def population_counts(raw: exp.Table, types: Sequence[str], persons: bool) -> exp.Select:
    """The population's rows, or persons, by combination, with the types of the source: ``q0`` .., ``population``."""
    keys = [named(cast(col(f"q{i}"), type_), f"q{i}") for i, type_ in enumerate(types)]
    return (_POPULATION_PERSONS if persons else _POPULATION_ROWS)(quasi=keys, raw=raw)


def class_numbers(raw: exp.Table, quasi: int, population: exp.Expr | None) -> exp.Select:
    """The distinct combinations, with a ``number`` for each."""
    columns = quasi_columns(quasi)
    if population is None:
        combinations: exp.Expr = _COMBINATIONS(quasi=columns, raw=raw)
    else:
        combinations = _COMBINATIONS_OF_BOTH(quasi=columns, raw=raw, population=population)
    return _NUMBERED(quasi=columns, combinations=combinations)


def with_numbers(rows: exp.Expr, numbers: exp.Table, quasi: int, columns: Sequence[str]) -> exp.Select:
    """Rows with the number of their combination as their one quasi-identifier ``q0``, and some of their columns."""
    on = all_of(same(col(f"q{i}", "r"), col(f"q{i}", "c")) for i in range(quasi))
    return _WITH_NUMBERS(columns=[col(name, "r") for name in columns], rows=rows, numbers=numbers, same=on)


def figures(space: ClassSpace) -> exp.Select:
    """One row: what the classes are, and for each requirement on a class the classes that break it.

    Columns: ``rows``, ``classes``, ``smallest_class``, ``uniques``; ``count``, ``smallest_count`` and ``singles``, the
    same in rows or persons (all of them, the fewest in a class, the classes of one); ``classes_i`` and ``rows_i`` for
    requirement i; and with a population ``absent``: its classes that have no row in the source.
    """
    requirements = space.requirements.classes
    broken: list[exp.Expr] = []
    for i in range(len(requirements)):
        flag = col(f"breaks_{i}")
        broken.append(named(_BROKEN_CLASSES(breaks=flag), f"classes_{i}"))
        broken.append(named(_BROKEN_ROWS(breaks=flag), f"rows_{i}"))
    if space.population:
        broken.append(named(_ABSENT(), "absent"))
    breaks = [named(_BREAKS(condition=one.condition()), f"breaks_{i}") for i, one in enumerate(requirements)]
    return _FIGURES(broken=broken, breaks=breaks, classes=_classes(space))


def figures_by_size(sizes: exp.Table, requirements: Sequence[ClassCondition]) -> exp.Select:
    """`figures` from the sizes of classes, where requirements need nothing else."""
    broken: list[exp.Expr] = []
    for i in range(len(requirements)):
        flag = col(f"breaks_{i}")
        broken.append(named(_BROKEN_CLASSES_BY_SIZE(breaks=flag), f"classes_{i}"))
        broken.append(named(_BROKEN_ROWS_BY_SIZE(breaks=flag), f"rows_{i}"))
    breaks = [named(_BREAKS_BY_SIZE(condition=one.condition()), f"breaks_{i}") for i, one in enumerate(requirements)]
    return _FIGURES_BY_SIZE(broken=broken, breaks=breaks, sizes=sizes)


def sizes(space: ClassSpace) -> exp.Select:
    """How many classes there are of each size, in rows or persons, and the rows in them."""
    return _SIZES(classes=_classes(space))


def population_sizes(space: ClassSpace) -> exp.Select:
    """How many classes match each number of the population, their counts added up, and their rows."""
    return _POPULATION_SIZES(classes=_classes(space))


def _classes(space: ClassSpace) -> exp.Select:
    return classes(space, (0,) * len(space.heights))
