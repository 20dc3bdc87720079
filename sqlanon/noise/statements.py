"""Statements of noise: the classes and their grids, the records with noise, and the records that are released.

============== ============= ===========================================================================================
column         of            meaning
============== ============= ===========================================================================================
``record``     record, noise number of the record
``x_j``        record        value of noisy attribute ``j`` as a number; dates are days since 1970-01-01
``class``      class         number of the class
``key_i``      class         rank of the class key of quasi-identifier ``i``, never NULL
``size``       class         records of the class
``low_j``      class         least value
``delta_j``    class         range of the values; 0 if all are equal
``grid_j``     class         distance between two values of the grid: the range divided by `STEPS`
``step_j``     class         released values are multiples of it; NULL if values are not rounded
``inverses_j`` class         sum of 1 / |x|
``zeros_j``    class         records whose value is 0
``n_j``        noise         drawn noise, in steps of the grid
``v_j``        noisy record  value with noise, before rounding and clamping
``y_j``        noisy record  released value
``constant_j`` noisy record  whether the class has one value, which gets no noise
============== ============= ===========================================================================================

Records also have the columns of the recoding's rows, and classes its keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from sqlanon.frequency.distribution import ValuePairs, count_value_pairs
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import PERSON
from sqlanon.frequency.uncoded import uncoded_distribution, uncoded_frequency_set
from sqlanon.requirements import Distribution, Requirements
from sqlanon.strategies.lattice.classes import evaluated_classes
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import Column, code_column, dense_rank, quasi_column, sensitive_column
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    arbitrary_row_number,
    as_column,
    cast,
    col,
    fragment,
    greatest,
    null_safe_equal,
    number,
    subquery,
    template,
    total,
)

MAX_MAGNITUDE = 1e100
"""The greatest magnitude of a value: ranges of greater values would overflow."""

_DATE = "DATE"
_WHOLE = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), "INTEGER"),
    **dict.fromkeys(("BIGINT", "UINTEGER"), "BIGINT"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), "DECIMAL(38,0)"),
}
_FLOATING = ("FLOAT", "DOUBLE")
_LIMITS = {"INTEGER": (-(2.0**31), 2.0**31 - 1), "BIGINT": (-(2.0**62), 2.0**62), "DATE": (-719162.0, 2932896.0)}
"""Range of noisy values by type. Dates from year 1 to 9999 are valid in all databases."""


@dataclass(frozen=True)
class NoisyColumn:
    """A column that gets noise."""

    name: str
    type: str
    position: int  # among the released columns; the recoding's rows have it as ``value_position``
    epsilon: float
    round: Decimal | None = None
    bounds: tuple[float, float] | None = None  # as numbers; dates as days

    @property
    def is_date(self) -> bool:
        return self.type == _DATE

    @property
    def unit(self) -> Decimal | None:
        """Released values are multiples of it; None if they are multiples of a power of two."""
        return unit_of(self.type) if self.round is None else self.round

    @property
    def released_type(self) -> str:
        """The type in the release, wide enough for values with noise."""
        decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", self.type)
        if decimal:
            return f"DECIMAL({min(38, max(18, int(decimal[1]) + 6))},{decimal[2]})"
        return _WHOLE.get(self.type, _DATE if self.type == _DATE else "DOUBLE")

    @property
    def representable_range(self) -> tuple[float, float]:
        """The least and the greatest value of the released type."""
        decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", self.released_type)
        if decimal is None:
            return _LIMITS.get(self.released_type, (-MAX_MAGNITUDE, MAX_MAGNITUDE))
        limit = 10.0 ** (int(decimal[1]) - int(decimal[2]) - 1)
        return -limit, limit

    @property
    def released_range(self) -> tuple[float, float]:
        """The least and the greatest released value: the policy's bounds, within the range of the type."""
        low, high = self.representable_range
        return (low, high) if self.bounds is None else (max(self.bounds[0], low), min(self.bounds[1], high))


def can_be_noisy(type_: str) -> bool:
    """Whether noise can be added to values of a type: it can to numbers and dates."""
    return type_ in (*_WHOLE, *_FLOATING, _DATE) or type_.startswith("DECIMAL(")


def unit_of(type_: str) -> Decimal | None:
    """The unit of a type: its smallest step; None for floating-point types."""
    decimal = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", type_)
    return Decimal(1).scaleb(-int(decimal[1])) if decimal else None if type_ in _FLOATING else Decimal(1)


def as_number(value: exp.Expr, type_: str) -> exp.Expr:
    """A value as a DOUBLE; dates are days since 1970-01-01."""
    if type_ == _DATE:
        return fragment("(:value - '1970-01-01'::DATE)::DOUBLE")(value=value)
    return fragment(":value::DOUBLE")(value=value)


def is_usable(value: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """Whether noise can be added to a value: it is not NULL, and a number in the range of the released type."""
    low, high = column.representable_range
    number = as_number(value, column.type)
    if column.is_date:
        is_finite = anonymous("ISFINITE", value.copy())
        is_usable_date = fragment(":value IS NOT NULL AND :is_finite AND (:number BETWEEN :low AND :high)")
        return is_usable_date(value=value, is_finite=is_finite, number=number, low=low, high=high)
    is_usable_number = fragment(":value IS NOT NULL AND (:number BETWEEN :low AND :high)")  # false for NaN
    return is_usable_number(value=value, number=number, low=low, high=high)


def is_zero(x: exp.Expr) -> exp.Expr:
    """Whether a value is 0, or so near to 0 that a relative error is meaningless."""
    return exp.Abs(this=x) < number(1 / MAX_MAGNITUDE)


def as_released_type(value: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """A number as a value of the released column."""
    if column.is_date:
        return fragment("('1970-01-01'::DATE + :value::INTEGER)::DATE")(value=value)
    return cast(value, column.released_type)


_FIGURES = template("SELECT :figures FROM :rows")


def unusable_counts(source: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row: for each column the rows whose value cannot have noise."""
    count = fragment("count(*) FILTER (WHERE NOT (:is_usable))")
    return _FIGURES(figures=[count(is_usable=is_usable(col(column.name), column)) for column in columns], rows=source)


STEPS = 1024
"""Number of grid steps in the range of a class."""

_MIN_RANGE = 1e-290
"""The least range of a class with two values, so that the grid can be divided by."""


def records(rows: exp.Select, columns: Sequence[NoisyColumn]) -> exp.Select:
    """The rows of a recoding that can have noise, with numbers."""
    values = [col(f"value_{column.position}", "r") for column in columns]
    return template("""
        SELECT :row_number AS record, u.*
        FROM (SELECT r.*, :numbers FROM :rows AS r WHERE :is_usable) AS u
    """)(
        row_number=arbitrary_row_number(),
        numbers=[
            as_column(as_number(value, column.type), f"x_{j}")
            for j, (value, column) in enumerate(zip(values, columns, strict=True))
        ],
        rows=rows,
        is_usable=all_of(is_usable(value, column) for value, column in zip(values, columns, strict=True)),
    )


# Different values may be equal as DOUBLE; their range is not 0.
_DELTA = fragment("""
    CASE WHEN max(:value) > min(:value) THEN greatest(max(:x) - min(:x), abs(max(:x)) * :ulp, :least_range) ELSE 0.0 END
""")


def noise_classes(records: exp.Table, keys: Mapping[int, str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """The classes of records, with the range of each noisy attribute and its grid."""
    inverses = fragment("sum(1.0 / abs(:x)) FILTER (WHERE NOT :is_zero)")
    zeros = fragment("count(*) FILTER (WHERE :is_zero)")
    figures: list[exp.Expr] = []
    grids: list[exp.Expr] = []
    for j, column in enumerate(columns):
        x, value = col(f"x_{j}"), col(f"value_{column.position}")
        delta, zero = _DELTA(value=value, x=x, ulp=2.0**-52, least_range=_MIN_RANGE), is_zero(x.copy())
        figures += [
            as_column(exp.Min(this=x.copy()), f"low_{j}"),
            as_column(delta, f"delta_{j}"),
            as_column(inverses(x=x, is_zero=zero), f"inverses_{j}"),
            as_column(zeros(is_zero=zero), f"zeros_{j}"),
        ]
        grids += [
            as_column(col(f"delta_{j}", "g") / number(float(STEPS)), f"grid_{j}"),
            as_column(_released_step(column, j), f"step_{j}"),
        ]
    # Classes are numbered in the order of their keys, so that numbers are the same on every run.
    order = exp.Order(expressions=[exp.Ordered(this=col(key, "g")) for key in keys.values()])
    return template("""
        SELECT :row_number AS class, :ranks, g.*, :grids
        FROM (SELECT :keys, count(*) AS size, :figures FROM :records GROUP BY :keys) AS g
    """)(
        row_number=exp.Window(this=exp.RowNumber(), order=order if keys else None),
        ranks=[as_column(dense_rank([col(key, "g")]), f"key_{i}") for i, key in keys.items()],
        grids=grids,
        keys=[col(key) for key in keys.values()],
        figures=figures,
        records=records,
    )


def _released_step(column: NoisyColumn, j: int) -> exp.Expr:
    """The step of the released values of a class: the unit times a power of two, at least a step of the grid.

    The grid itself would reveal the range of the class; the power of two reveals only its magnitude. Without noise the
    step is the policy's rounding, or NULL: values are unchanged.
    """
    unit = float(column.unit or 1)
    delta = col(f"delta_{j}", "g")
    ratio = delta / number(STEPS * unit)
    # The last digits of logarithms differ among engines; powers of two do not.
    power = fragment("""
        CASE WHEN pow(2.0, round(:log)) >= :ratio THEN pow(2.0, round(:log)) ELSE pow(2.0, round(:log)) * 2.0 END
    """)(log=anonymous("LOG2", ratio), ratio=ratio)
    if column.unit is not None:
        power = greatest(power, number(1.0))
    step_without_noise = number(unit) if column.round is not None else exp.null()
    return fragment("CASE WHEN :delta = 0.0 THEN :step_without_noise ELSE :unit * :power END")(
        delta=delta, step_without_noise=step_without_noise, unit=unit, power=power
    )


def noisy_records(
    records: exp.Table, classes: exp.Table, keys: Mapping[int, str], drawn: exp.Table, columns: Sequence[NoisyColumn]
) -> exp.Select:
    """The records with their class and noise."""
    # low + (z + n) grid, where z = 0 .. `STEPS` is the position of the value on the grid of its class. Whatever the
    # rounding, values of a class differ by at most its range, to which ε refers.
    add_noise = fragment("""
        CASE
            WHEN :grid = 0.0 THEN :low
            ELSE :low + (least(greatest(round((:x - :low) / :grid), 0.0), :steps) + :n::DOUBLE) * :grid
        END
    """)
    noise: list[exp.Expr] = []
    released: list[exp.Expr] = []
    for j, column in enumerate(columns):
        value = add_noise(
            grid=col(f"grid_{j}", "c"),
            low=col(f"low_{j}", "c"),
            x=col(f"x_{j}", "r"),
            steps=float(STEPS),
            n=col(f"n_{j}", "d"),
        )
        noise += [
            as_column(value, f"v_{j}"),
            as_column(col(f"step_{j}", "c"), f"step_{j}"),
            as_column(col(f"delta_{j}", "c").eq(0.0), f"constant_{j}"),
        ]
        released.append(as_column(round_to_step(col(f"v_{j}", "w"), col(f"step_{j}", "w"), column), f"y_{j}"))
    return template("""
        SELECT w.*, :released
        FROM (
            SELECT r.*, c.class, :noise
            FROM :records AS r
            JOIN :classes AS c ON :same_class
            JOIN :drawn AS d ON r.record = d.record
        ) AS w
    """)(
        released=released,
        noise=noise,
        records=records,
        classes=classes,
        same_class=all_of(null_safe_equal(col(key, "r"), col(key, "c")) for key in keys.values()),
        drawn=drawn,
    )


def round_to_step(value: exp.Expr, step: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """A value rounded to a multiple of the step of its class (unless the step is NULL), and clamped."""
    if column.unit is not None and (places := -int(column.unit.as_tuple().exponent)) > 0:
        # A multiple of 0.1 may have further digits as DOUBLE.
        rounded = fragment("round(round(:value / :step) * :step, :places)")(value=value, step=step, places=places)
    else:
        rounded = fragment("round(:value / :step) * :step")(value=value, step=step)
    low, high = column.released_range
    # The addition turns -0.0 into 0.0.
    return fragment("(least(greatest(coalesce(:rounded, :value), :low), :high) + 0.0)")(
        rounded=rounded, value=value, low=low, high=high
    )


def drawn_columns(columns: Sequence[NoisyColumn]) -> list[tuple[str, str]]:
    """Names and types of the columns of the drawn noise."""
    return [("record", "BIGINT"), *((f"n_{j}", "BIGINT") for j in range(len(columns)))]


def _join_kept(query: exp.Select, released_records: exp.Table, join_type: str) -> exp.Select:
    on = col("record", "n").eq(col("record", "k"))
    return query.join(aliased(released_records, "k"), on=on, join_type=join_type, copy=False)


@dataclass(frozen=True)
class DrawnNoise:
    """The records of a recoding, with noise."""

    noisy: exp.Table  # made by `noisy_records`
    kept: exp.Table | None  # the released records; None: all
    columns: tuple[NoisyColumn, ...]
    names: tuple[str, ...]  # the columns of the rows
    column_count: int  # the number of released columns
    private: tuple[Column, ...] = ()  # trailing unreleased columns of the rows: person and key

    @property
    def types(self) -> dict[str, str]:
        """Noisy columns have a type that is wide enough for noise."""
        return {column.name: column.released_type for column in self.columns}

    def rows(self, recoding: ClassRecoding) -> exp.Select:
        """The rows, in which each column that was added to the recoding is one of the private columns."""
        stored_names = {
            f"value_{j}": f"value_{self.column_count + self.private.index(recoding.columns[j])}"
            for j in range(self.column_count, len(recoding.columns))
        }
        columns_by_name = {f"value_{column.position}": (j, column) for j, column in enumerate(self.columns)}
        output: list[exp.Expr] = []
        for name in self.names:
            if name not in columns_by_name:
                output.append(as_column(col(stored_names.get(name, name), "n"), name))
                continue
            j, column = columns_by_name[name]
            value = as_released_type(col(f"y_{j}", "n"), column)
            if column.round is None and column.bounds is None:  # values of constant classes keep every digit
                value = fragment("CASE WHEN :is_constant THEN :true_value ELSE :value END")(
                    is_constant=col(f"constant_{j}", "n"),
                    true_value=cast(col(name, "n"), column.released_type),
                    value=value,
                )
            output.append(as_column(value, name))
        query = template("SELECT :columns FROM :noisy AS n")(columns=output, noisy=self.noisy)
        return query if self.kept is None else _join_kept(query, self.kept, "semi")

    def class_ranges(self, recoding: ClassRecoding) -> exp.Select:
        """The released classes; each noisy column has ``low`` and ``high`` of its true values and the ``step`` of the
        released ones."""
        class_range = fragment("{'low': min(:x), 'high': max(:x), 'step': any_value(:step)}")
        ranges: dict[str, exp.Expr] = {
            f"value_{column.position}": class_range(x=col(f"x_{j}"), step=col(f"step_{j}"))
            for j, column in enumerate(self.columns)
        }
        any_value = fragment("any_value(:value)")
        columns = [as_column(ranges.get(name, any_value(value=col(name))), name) for name in self.names]
        query = template("SELECT :columns FROM :noisy AS n GROUP BY class")(columns=columns, noisy=self.noisy)
        return recoding.with_labels(subquery(query, "r"))

    def all_records(self) -> exp.Select:
        """All records with noise, for the data holder: ``record, class, x_j, v_j, y_j, released``."""
        figures = [col(f"{name}_{j}", "n") for j in range(len(self.columns)) for name in "xvy"]
        is_released = exp.true() if self.kept is None else fragment("k.record IS NOT NULL")()
        query = template("SELECT n.record, n.class, :figures, :is_released AS released FROM :noisy AS n")(
            figures=figures, is_released=is_released, noisy=self.noisy
        )
        return query if self.kept is None else _join_kept(query, self.kept, "left")


def expected_errors(classes: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row of expected errors with ε = 1, before noise is drawn. For each attribute:

    - ``expected_j``: the mean over rows of the range of their class;
    - ``expected_relative_j``: the mean of this range divided by the magnitude of the value, without rows of 0;
    - ``zeros_j``: the rows of 0;
    - ``constant_rows_j``: the rows of classes whose values are all equal.

    Source: (k,ε)-Anonymity, the expected relative error of a class: (Δ/ε) / H, H the harmonic mean of its values.
    """
    expected = fragment("sum(size * :delta) / nullif(sum(size), 0)")
    expected_relative = fragment("sum(:delta * :inverses) / nullif(sum(size) - sum(:zeros), 0)")
    figures: list[exp.Expr] = []
    for j in range(len(columns)):
        delta, zeros, inverses = col(f"delta_{j}"), col(f"zeros_{j}"), col(f"inverses_{j}")
        figures += [
            as_column(expected(delta=delta), f"expected_{j}"),
            as_column(expected_relative(delta=delta, inverses=inverses, zeros=zeros), f"expected_relative_{j}"),
            as_column(total(zeros.copy()), f"zeros_{j}"),
            as_column(total(col("size"), delta.eq(0.0)), f"constant_rows_{j}"),
        ]
    return _FIGURES(figures=figures, rows=classes)


def observed_errors(noisy: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row, of the drawn noise: ``observed_j`` and ``observed_relative_j``, the mean errors."""
    observed = fragment("avg(abs(:y - :x))")
    observed_relative = fragment("avg(abs(:y - :x) / CASE WHEN :is_zero THEN NULL ELSE abs(:x) END)")
    figures: list[exp.Expr] = []
    for j in range(len(columns)):
        x, y = col(f"x_{j}"), col(f"y_{j}")
        figures += [
            as_column(observed(y=y, x=x), f"observed_{j}"),
            as_column(observed_relative(y=y, x=x, is_zero=is_zero(x.copy())), f"observed_relative_{j}"),
        ]
    return _FIGURES(figures=figures, rows=noisy)


def survivors(
    noisy: exp.Table,
    classes: exp.Table,
    keys: Sequence[int],
    attributes: int,
    sensitive: Sequence[str],
    person: str | None,
    nearby: exp.Table | None,
    k: int,
) -> exp.Select:
    """The records without those that have 1 to k − 1 ``nearby`` originals.

    Columns, as in `frequency.statements.raw_frequency`: ``record``, ``quasi_0``, ... (the class key of each
    quasi-identifier, never NULL), ``sensitive_0``, ..., ``person`` and ``row_count``.
    """
    columns = [as_column(col(f"key_{i}", "c") if i in keys else number(0), quasi_column(i)) for i in range(attributes)]
    columns += [as_column(col(name, "n"), sensitive_column(s)) for s, name in enumerate(sensitive)]
    columns += [as_column(col(person, "n"), PERSON)] if person is not None else []
    if nearby is None:
        return template("""
            SELECT n.record, :columns, 1 AS row_count
            FROM :noisy AS n
            JOIN :classes AS c ON n.class = c.class
        """)(columns=columns, noisy=noisy, classes=classes)
    return template("""
        SELECT n.record, :columns, 1 AS row_count
        FROM :noisy AS n
        JOIN :classes AS c ON n.class = c.class
        JOIN :nearby AS l ON n.record = l.record
        WHERE NOT (l.nearby_count BETWEEN 1 AND :upper_bound)
    """)(columns=columns, noisy=noisy, classes=classes, nearby=nearby, upper_bound=k - 1)


def evaluated_survivors(
    survivors: exp.Table,
    attributes: int,
    sensitive: Sequence[str],
    distributions: Mapping[Distribution, ValuePairs],
    persons: bool,
    requirements: Requirements,
) -> exp.Select:
    """The classes of the survivors: ``quasi_0``, ..., ``class_size``, ``class_count``, ``kept``."""
    quasi = range(attributes)
    sensitive_tables = {}
    for distribution, pairs in distributions.items():
        index = sensitive.index(distribution.attribute)
        inner = [s for s in range(len(sensitive)) if s != index] if distribution.kind == "joint" else []
        counts = count_value_pairs(survivors, attributes, index, inner, persons)
        values = uncoded_distribution(counts, pairs.values, attributes, len(inner))
        sensitive_tables[distribution] = SensitiveTable(values, len(inner), pairs.domain)
    space = ClassSpace(
        uncoded_frequency_set(survivors, quasi, persons),
        (1,) * attributes,
        requirements,
        sensitive=sensitive_tables,
        persons=persons,
    )
    keys: list[exp.Expr] = [as_column(col(code_column(i, 0)), quasi_column(i)) for i in quasi]
    return template("SELECT :keys, class_size, class_count, kept FROM :evaluated AS j")(
        keys=[col(quasi_column(i)) for i in quasi], evaluated=evaluated_classes(space, (0,) * attributes, keys)
    )


def kept_records(survivors: exp.Table, evaluated: exp.Table, attributes: int) -> exp.Select:
    """The ``record`` of the survivors in kept classes."""
    return template("""
        SELECT s.record
        FROM :survivors AS s
        SEMI JOIN (SELECT * FROM :evaluated WHERE kept) AS j ON :same_class
    """)(
        survivors=survivors,
        evaluated=evaluated,
        same_class=all_of(col(quasi_column(i), "s").eq(col(quasi_column(i), "j")) for i in range(attributes)),
    )


def persons_of_records(members: exp.Table, survivors: exp.Table, released_records: exp.Table) -> exp.Select:
    """One row: the persons of the source, those with a record that is not kept, and those of them with a kept one."""
    return template("""
        SELECT
            count(*) AS persons,
            count(*) FILTER (WHERE coalesce(k.row_count, 0) < m.row_count) AS suppressed,
            count(*) FILTER (WHERE k.row_count < m.row_count) AS partly_released
        FROM (SELECT person, sum(row_count)::BIGINT AS row_count FROM :members GROUP BY person) AS m
        LEFT JOIN (
            SELECT s.person, count(*) AS row_count
            FROM :survivors AS s
            SEMI JOIN :kept AS k ON s.record = k.record
            GROUP BY s.person
        ) AS k ON m.person IS NOT DISTINCT FROM k.person
    """)(members=members, survivors=survivors, kept=released_records)
