"""Noise inside classes: what each class needs of it, the rows with what was drawn, and those of them that are released.

Names of columns, all ours. Of a record: ``record`` (its number), the columns of the recoding's rows, and for each
attribute ``j`` with noise ``x_j`` (its value as a number; of a date the days since 1970-01-01). Of a class: ``class``
(its number), the keys of the recoding, ``key_i`` for each attribute ``i`` that tells classes apart (a rank in place of
the key: never NULL), ``size``, and for each ``j`` ``low_j``, ``delta_j`` (the range), ``grid_j``, ``step_j``,
``inverses_j`` (the sum of 1 / |x|) and ``zeros_j`` (rows without one). Of what was drawn: ``record`` and ``n_j``. With
noise: ``v_j``; ``y_j``, as it is released, rounded and within the limits; and ``still_j``, whether there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from sqlanon.frequency.distribution import ValuePairs, count_value_pairs
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import PERSON
from sqlanon.frequency.uncoded import uncoded_distribution, uncoded_frequency_set
from sqlanon.requirements import Distribution, Requirements
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.strategies.recoding import ClassRecoding, order_by_class
from sqlanon.support.coding import Column, code_column, dense_rank
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

LARGEST = 1e100
"""Greater magnitudes are no measurements, and their ranges would overflow."""

_DATE = "DATE"
_WHOLE = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), "INTEGER"),
    **dict.fromkeys(("BIGINT", "UINTEGER"), "BIGINT"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), "DECIMAL(38,0)"),
}
_FLOATING = ("FLOAT", "DOUBLE")
_LIMITS = {"INTEGER": (-(2.0**31), 2.0**31 - 1), "BIGINT": (-(2.0**62), 2.0**62), "DATE": (-719162.0, 2932896.0)}
"""What a type holds, as far as noise may go: dates from year 1 to 9999, which all readers know."""


@dataclass(frozen=True)
class NoisyColumn:
    """A column that gets noise."""

    name: str
    type: str
    place: int  # among the released columns: the recoding's rows have it as ``value_place``
    epsilon: float
    round: Decimal | None = None
    bounds: tuple[float, float] | None = None  # as numbers (days)

    @property
    def is_date(self) -> bool:
        """Whether its values are dates."""
        return self.type == _DATE

    @property
    def unit(self) -> Decimal | None:
        """Released values are multiples of it; None where they are multiples of a power of two."""
        return unit_of(self.type) if self.round is None else self.round

    @property
    def released_type(self) -> str:
        """Its type in the release, in which values with noise have room."""
        found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", self.type)
        if found:
            return f"DECIMAL({min(38, max(18, int(found[1]) + 6))},{found[2]})"
        return _WHOLE.get(self.type, _DATE if self.type == _DATE else "DOUBLE")

    @property
    def representable_range(self) -> tuple[float, float]:
        """The least and the greatest value that there is room for in the release."""
        found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", self.released_type)
        if found is None:
            return _LIMITS.get(self.released_type, (-LARGEST, LARGEST))
        room = 10.0 ** (int(found[1]) - int(found[2]) - 1)
        return -room, room

    @property
    def released_range(self) -> tuple[float, float]:
        """The least and the greatest value that is released: the policy's bounds, and what there is room for."""
        low, high = self.representable_range
        return (low, high) if self.bounds is None else (max(self.bounds[0], low), min(self.bounds[1], high))


def can_be_noisy(type_: str) -> bool:
    """Whether noise can be added to values of a type: numbers and dates."""
    return type_ in (*_WHOLE, *_FLOATING, _DATE) or type_.startswith("DECIMAL(")


def unit_of(type_: str) -> Decimal | None:
    """What all values of a type are multiples of; None where there is nothing of the kind."""
    found = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", type_)
    return Decimal(1).scaleb(-int(found[1])) if found else None if type_ in _FLOATING else Decimal(1)


_DAYS = fragment("(:value - '1970-01-01'::DATE)::DOUBLE")
_NUMBER = fragment(":value::DOUBLE")


def as_number(value: exp.Expr, type_: str) -> exp.Expr:
    """A value as a DOUBLE; of a date the days since 1970-01-01."""
    return _DAYS(value=value) if type_ == _DATE else _NUMBER(value=value)


_USABLE = fragment(":value IS NOT NULL AND (:number BETWEEN :low AND :high)")  # NaN is not
_USABLE_DATE = fragment(":value IS NOT NULL AND :is_finite AND (:number BETWEEN :low AND :high)")


def is_usable(value: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """Whether noise can be added to a value: it is there, and a number that there is room for."""
    low, high = column.representable_range
    number = as_number(value, column.type)
    if column.is_date:
        is_finite = anonymous("ISFINITE", value.copy())
        return _USABLE_DATE(value=value, is_finite=is_finite, number=number, low=low, high=high)
    return _USABLE(value=value, number=number, low=low, high=high)


def is_zero(x: exp.Expr) -> exp.Expr:
    """Whether a value is 0, or so near to it that to be off by something has no meaning in shares of it."""
    return exp.Abs(this=x) < number(1 / LARGEST)


_DATE_OF = fragment("('1970-01-01'::DATE + :value::INTEGER)::DATE")


def as_released_type(value: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """A number as a value of the released column."""
    return cast(value, column.released_type) if column.type != _DATE else _DATE_OF(value=value)


_UNUSABLE = fragment("count(*) FILTER (WHERE NOT (:usable))")
_FIGURES = template("SELECT :figures FROM :rows")


def unusable_counts(source: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row: for each column the rows whose value no noise can be added to."""
    return _FIGURES(figures=[_UNUSABLE(usable=is_usable(col(one.name), one)) for one in columns], rows=source)


STEPS = 1024
"""The range of a class has so many steps of its grid."""

_TINIEST = 1e-290
"""No range is less: the grid is to be of numbers that can be divided by."""

_RECORDS = template("""
    SELECT :any_number AS record, u.*
    FROM (SELECT r.*, :numbers FROM :rows AS r WHERE :usable) AS u
""")


def records(rows: exp.Select, columns: Sequence[NoisyColumn]) -> exp.Select:
    """The rows of a recoding that noise can be added to, each with its number."""
    values = [(col(f"value_{one.place}", "r"), one) for one in columns]
    return _RECORDS(
        any_number=arbitrary_row_number(),
        numbers=[as_column(as_number(value, one.type), f"x_{j}") for j, (value, one) in enumerate(values)],
        rows=rows,
        usable=all_of(is_usable(value, one) for value, one in values),
    )


_CLASSES = template("""
    SELECT :number AS class, :ranks, g.*, :steps
    FROM (SELECT :keys, count(*) AS size, :figures FROM :records GROUP BY :keys) AS g
""")
# Values may differ where as DOUBLE they are equal: no range is 0 for that.
_DELTA = fragment("""
    CASE WHEN max(:value) > min(:value) THEN greatest(max(:x) - min(:x), abs(max(:x)) * :ulp, :tiniest) ELSE 0.0 END
""")
_INVERSES = fragment("sum(1.0 / abs(:x)) FILTER (WHERE NOT :is_zero)")
_ZEROS = fragment("count(*) FILTER (WHERE :is_zero)")


def noise_classes(records: exp.Table, keys: Mapping[int, str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """What noise needs of each class; the grid is `STEPS` parts of the range."""
    figures: list[exp.Expr] = []
    steps: list[exp.Expr] = []
    for j, one in enumerate(columns):
        x, value = col(f"x_{j}"), col(f"value_{one.place}")
        delta, zero = _DELTA(value=value, x=x, ulp=2.0**-52, tiniest=_TINIEST), is_zero(x.copy())
        figures += [
            as_column(exp.Min(this=x.copy()), f"low_{j}"),
            as_column(delta, f"delta_{j}"),
            as_column(_INVERSES(x=x, is_zero=zero), f"inverses_{j}"),
            as_column(_ZEROS(is_zero=zero), f"zeros_{j}"),
        ]
        steps += [
            as_column(col(f"delta_{j}", "g") / number(float(STEPS)), f"grid_{j}"),
            as_column(_step(one, j), f"step_{j}"),
        ]
    # The number of a class is its place among them by their keys, so that it is the same on every run.
    order = exp.Order(expressions=[exp.Ordered(this=col(key, "g")) for key in keys.values()])
    return _CLASSES(
        number=exp.Window(this=exp.RowNumber(), order=order if keys else None),
        ranks=[as_column(dense_rank([col(key, "g")]), f"key_{i}") for i, key in keys.items()],
        steps=steps,
        keys=[col(key) for key in keys.values()],
        figures=figures,
        records=records,
    )


_POWER = fragment("""
    CASE WHEN pow(2.0, round(:log)) >= :ratio THEN pow(2.0, round(:log)) ELSE pow(2.0, round(:log)) * 2.0 END
""")
_STEP = fragment("CASE WHEN :delta = 0.0 THEN :still ELSE :unit * :power END")


def _step(column: NoisyColumn, j: int) -> exp.Expr:
    """What released values of a class are multiples of: a power of two times the unit, at least a step of the grid.

    The grid shows the range of the class; coarser multiples of a unit that all classes share show its magnitude alone.
    Where there is no noise it is the policy's granularity, if any (else NULL: values stay).
    """
    unit = float(column.unit or 1)
    delta = col(f"delta_{j}", "g")
    ratio = delta / number(STEPS * unit)
    # Of logarithms the last digits differ among engines; of powers of two none do.
    power = _POWER(log=anonymous("LOG2", ratio), ratio=ratio)
    if column.unit is not None:
        power = greatest(power, number(1.0))
    still = number(unit) if column.round is not None else exp.null()
    return _STEP(delta=delta, still=still, unit=unit, power=power)


_NOISY = template("""
    SELECT w.*, :released
    FROM (
        SELECT r.*, c.class, :noise
        FROM :records AS r
        JOIN :classes AS c ON :same_class
        JOIN :drawn AS d ON r.record = d.record
    ) AS w
""")
# ``low + (z + n) grid``; z = 0 .. `STEPS` is where on the grid of its class a value is. Whatever rounding does, no two
# values of a class are more than its range apart: that is what ε is of.
_WITH_NOISE = fragment("""
    CASE
        WHEN :grid = 0.0 THEN :low
        ELSE :low + (least(greatest(round((:x - :low) / :grid), 0.0), :steps) + :n::DOUBLE) * :grid
    END
""")


def noisy_records(
    records: exp.Table, classes: exp.Table, keys: Mapping[int, str], drawn: exp.Table, columns: Sequence[NoisyColumn]
) -> exp.Select:
    """The records with the number of their class, and what was drawn added to their values."""
    noise: list[exp.Expr] = []
    for j, _ in enumerate(columns):
        value = _WITH_NOISE(
            grid=col(f"grid_{j}", "c"),
            low=col(f"low_{j}", "c"),
            x=col(f"x_{j}", "r"),
            steps=float(STEPS),
            n=col(f"n_{j}", "d"),
        )
        still = col(f"delta_{j}", "c").eq(0.0)
        noise += [
            as_column(value, f"v_{j}"),
            as_column(col(f"step_{j}", "c"), f"step_{j}"),
            as_column(still, f"still_{j}"),
        ]
    released = [round_to_step(col(f"v_{j}", "w"), col(f"step_{j}", "w"), one) for j, one in enumerate(columns)]
    return _NOISY(
        released=[as_column(value, f"y_{j}") for j, value in enumerate(released)],
        noise=noise,
        records=records,
        classes=classes,
        same_class=all_of(null_safe_equal(col(key, "r"), col(key, "c")) for key in keys.values()),
        drawn=drawn,
    )


_ROUNDED = fragment("round(:value / :step) * :step")
_ROUNDED_TO = fragment("round(round(:value / :step) * :step, :places)")
_WITHIN = fragment("(least(greatest(coalesce(:rounded, :value), :low), :high) + 0.0)")  # no -0.0


def round_to_step(value: exp.Expr, step: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """A value as it may be released: a multiple of the step of its class (NULL: as it is), within the limits."""
    if column.unit is not None and (places := -int(column.unit.as_tuple().exponent)) > 0:
        # 0.1 times a whole number is not always as written.
        rounded = _ROUNDED_TO(value=value, step=step, places=places)
    else:
        rounded = _ROUNDED(value=value, step=step)
    low, high = column.released_range
    return _WITHIN(rounded=rounded, value=value, low=low, high=high)


def drawn_columns(columns: Sequence[NoisyColumn]) -> list[tuple[str, str]]:
    """Name and type of the columns of what is drawn."""
    return [("record", "BIGINT"), *((f"n_{j}", "BIGINT") for j in range(len(columns)))]


_RELEASED = template("SELECT :columns FROM :noisy AS n")
_UNLESS_STILL = fragment("CASE WHEN :still THEN :own ELSE :value END")


def released(
    noisy: exp.Table,
    kept: exp.Table | None,
    columns: Sequence[NoisyColumn],
    rows: Sequence[str],
    renamed: Mapping[str, str],
) -> exp.Select:
    """The rows of a recoding again, with noise; ``renamed`` columns have the values of others."""
    by_name = {f"value_{one.place}": (j, one) for j, one in enumerate(columns)}
    output: list[exp.Expr] = []
    for name in rows:
        if name not in by_name:
            output.append(as_column(col(renamed.get(name, name), "n"), name))
            continue
        j, one = by_name[name]
        value = as_released_type(col(f"y_{j}", "n"), one)
        if one.round is None and one.bounds is None:  # as it is, to the last digit
            value = _UNLESS_STILL(
                still=col(f"still_{j}", "n"), own=cast(col(name, "n"), one.released_type), value=value
            )
        output.append(as_column(value, name))
    query = _RELEASED(columns=output, noisy=noisy)
    if kept is not None:
        query = query.join(aliased(kept, "k"), on=_is_record(), join_type="semi", copy=False)
    return query


def _is_record() -> exp.Expr:
    return col("record", "n").eq(col("record", "k"))


_BY_CLASS = template("SELECT :columns FROM :noisy AS n GROUP BY class")
_ANY_VALUE = fragment("any_value(:value)")
_CLASS_RANGE = fragment("{'low': min(:x), 'high': max(:x), 'step': any_value(:step)}")
_ALL_RECORDS = template("SELECT n.record, n.class, :figures, :released AS released FROM :noisy AS n")
_IS_THERE = fragment("k.record IS NOT NULL")


@dataclass(frozen=True)
class NoisyRecoding:
    """A recoding whose rows have got noise."""

    plain: ClassRecoding
    noisy: exp.Table  # made by `noisy`
    kept: exp.Table | None  # the records that are released; None: all
    noisy_columns: tuple[NoisyColumn, ...]
    names: tuple[str, ...]  # the columns of the rows
    private: tuple[Column, ...] = ()  # columns that the rows have behind the released ones: their person and key
    added: tuple[Column, ...] = ()  # those of them that are selected, too

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.plain.columns

    def released_type(self, column: Column, own: str) -> str:
        """Where there is noise, a type that has room for it."""
        types = {one.name: one.released_type for one in self.noisy_columns}
        return types.get(column.name) or self.plain.released_type(column, own)

    def label_counts(self) -> exp.Select:
        return self.plain.label_counts()

    def fully_suppressed(self) -> exp.Select:
        return self.plain.fully_suppressed()

    def with_column(self, column: Column) -> NoisyRecoding:
        """The same, with one more of the private columns."""
        return replace(self, plain=self.plain.with_column(column), added=(*self.added, column))

    @property
    def _added_values(self) -> dict[str, str]:
        """By the name that a column of the rows is read by, its own: only some of the private ones may be added."""
        first = len(self.plain.columns) - len(self.added)
        return {f"value_{first + j}": f"value_{first + self.private.index(one)}" for j, one in enumerate(self.added)}

    def select(self, shuffled: bool = True) -> exp.Select:
        rows = released(self.noisy, self.kept, self.noisy_columns, self.names, self._added_values)
        return order_by_class(self.plain, rows) if shuffled else self.plain.with_labels(subquery(rows, "r"))

    def class_ranges(self) -> exp.Select:
        """The classes as they are released, where each column with noise has the range of the true values and the step
        of the released ones: ``low``, ``high`` and ``step``."""
        ranges: dict[str, exp.Expr] = {
            f"value_{one.place}": _CLASS_RANGE(x=col(f"x_{j}"), step=col(f"step_{j}"))
            for j, one in enumerate(self.noisy_columns)
        }
        columns = [as_column(ranges.get(name, _ANY_VALUE(value=col(name))), name) for name in self.names]
        return self.plain.with_labels(subquery(_BY_CLASS(columns=columns, noisy=self.noisy), "r"))

    def all_records(self) -> exp.Select:
        """The records with noise, for the holder: ``record``, ``class``, ``x_j``, ``v_j``, ``y_j``, ``released``."""
        figures = [col(f"{name}_{j}", "n") for j in range(len(self.noisy_columns)) for name in "xvy"]
        if self.kept is None:
            return _ALL_RECORDS(figures=figures, released=exp.true(), noisy=self.noisy)
        query, on = _ALL_RECORDS(figures=figures, released=_IS_THERE(), noisy=self.noisy), _is_record()
        return query.join(aliased(self.kept, "k"), on=on, join_type="left", copy=False)


_EXPECTED = fragment("sum(size * :delta) / nullif(sum(size), 0)")
_EXPECTED_RELATIVE = fragment("sum(:delta * :inverses) / nullif(sum(size) - sum(:zeros), 0)")
_ZERO_ROWS = fragment("sum(:zeros)::BIGINT")


def expected_errors(classes: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row, before anything is drawn: for each attribute with ε = 1 ``expected_j`` (the mean over rows of the range
    of their class), ``expected_relative_j`` (of the range over the magnitude of the value; rows of 0 have none) and
    ``zeros_j``, the rows of 0; and ``still_j``, the rows of classes whose values are all equal.

    Source: (k,ε)-Anonymity, the expected relative error of a class: (Δ/ε) / H, H the harmonic mean of its values.
    """
    figures: list[exp.Expr] = []
    for j, _ in enumerate(columns):
        delta, zeros, inverses = col(f"delta_{j}"), col(f"zeros_{j}"), col(f"inverses_{j}")
        figures += [
            as_column(_EXPECTED(delta=delta), f"expected_{j}"),
            as_column(_EXPECTED_RELATIVE(delta=delta, inverses=inverses, zeros=zeros), f"expected_relative_{j}"),
            as_column(_ZERO_ROWS(zeros=zeros), f"zeros_{j}"),
            as_column(total(col("size"), delta.eq(0.0)), f"still_{j}"),
        ]
    return _FIGURES(figures=figures, rows=classes)


_OBSERVED = fragment("avg(abs(:y - :x))")
_OBSERVED_RELATIVE = fragment("avg(abs(:y - :x) / CASE WHEN :is_zero THEN NULL ELSE abs(:x) END)")


def observed_errors(noisy: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row, of the noise that was drawn: ``observed_j`` and ``observed_relative_j``."""
    figures: list[exp.Expr] = []
    for j, _ in enumerate(columns):
        x, y = col(f"x_{j}"), col(f"y_{j}")
        figures += [
            as_column(_OBSERVED(y=y, x=x), f"observed_{j}"),
            as_column(_OBSERVED_RELATIVE(y=y, x=x, is_zero=is_zero(x.copy())), f"observed_relative_{j}"),
        ]
    return _FIGURES(figures=figures, rows=noisy)


_SURVIVORS = template("""
    SELECT n.record, :columns, 1 AS n
    FROM :noisy AS n
    JOIN :classes AS c ON n.class = c.class
""")
_HIDDEN_SURVIVORS = template("""
    SELECT n.record, :columns, 1 AS n
    FROM :noisy AS n
    JOIN :classes AS c ON n.class = c.class
    JOIN :near AS l ON n.record = l.record
    WHERE NOT (l.near BETWEEN 1 AND :most)
""")


def survivors(
    noisy: exp.Table,
    classes: exp.Table,
    keys: Sequence[int],
    attributes: int,
    sensitive: Sequence[str],
    person: str | None,
    near: exp.Table | None,
    k: int,
) -> exp.Select:
    """The records that are not suppressed by themselves, as rows of `frequency.statements.raw_frequency`: ``q0, q1,
    ...`` (a class's key of each quasi-identifier, never NULL), ``s0, s1, ...``, ``person`` and ``n``."""
    columns = [as_column(col(f"key_{i}", "c") if i in keys else number(0), f"q{i}") for i in range(attributes)]
    columns += [as_column(col(name, "n"), f"s{s}") for s, name in enumerate(sensitive)]
    columns += [as_column(col(person, "n"), PERSON)] if person is not None else []
    if near is None:
        return _SURVIVORS(columns=columns, noisy=noisy, classes=classes)
    return _HIDDEN_SURVIVORS(columns=columns, noisy=noisy, classes=classes, near=near, most=k - 1)


_JUDGED = template("SELECT :keys, class_size, class_count, kept FROM :judged AS j")


def judged_survivors(
    survivors: exp.Table,
    attributes: int,
    sensitive: Sequence[str],
    distributions: Mapping[Distribution, ValuePairs],
    persons: bool,
    requirements: Requirements,
) -> exp.Select:
    """The classes of the survivors: ``q0, q1, ...``, ``class_size``, ``class_count``, ``kept``."""
    quasi = range(attributes)
    tables = {}
    for one, pairs in distributions.items():
        index = sensitive.index(one.attribute)
        inner = [s for s in range(len(sensitive)) if s != index] if one.kind == "joint" else []
        counts = count_value_pairs(survivors, attributes, index, inner, persons)
        values = uncoded_distribution(counts, pairs.values, attributes, len(inner))
        tables[one] = SensitiveTable(values, len(inner), pairs.domain)
    space = ClassSpace(
        uncoded_frequency_set(survivors, quasi, persons),
        (1,) * attributes,
        requirements,
        sensitive=tables,
        persons=persons,
    )
    keys: list[exp.Expr] = [as_column(col(code_column(i, 0)), f"q{i}") for i in quasi]
    return _JUDGED(keys=[col(f"q{i}") for i in quasi], judged=judged_classes(space, (0,) * attributes, keys))


_KEPT = template("""
    SELECT s.record
    FROM :survivors AS s
    SEMI JOIN (SELECT * FROM :judged WHERE kept) AS j ON :same
""")


def kept_records(survivors: exp.Table, judged: exp.Table, attributes: int) -> exp.Select:
    """The ``record`` of the survivors whose class is kept."""
    same_class = all_of(col(f"q{i}", "s").eq(col(f"q{i}", "j")) for i in range(attributes))
    return _KEPT(survivors=survivors, judged=judged, same=same_class)


_PERSONS_OF_RECORDS = template("""
    SELECT
        count(*) AS persons,
        count(*) FILTER (WHERE coalesce(k.n, 0) < m.n) AS suppressed,
        count(*) FILTER (WHERE k.n < m.n) AS partly_released
    FROM (SELECT person, sum(n)::BIGINT AS n FROM :members GROUP BY person) AS m
    LEFT JOIN (
        SELECT s.person, count(*) AS n
        FROM :survivors AS s
        SEMI JOIN :kept AS k ON s.record = k.record
        GROUP BY s.person
    ) AS k ON m.person IS NOT DISTINCT FROM k.person
""")


def persons_of_records(members: exp.Table, survivors: exp.Table, kept: exp.Table) -> exp.Select:
    """One row: the persons of the source, those with a row that is not among the kept records, and those of them with
    another that is."""
    return _PERSONS_OF_RECORDS(members=members, survivors=survivors, kept=kept)
