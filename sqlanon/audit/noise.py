"""Checks of noise against the source: whether each value is possible, and whether the noise has the right size.

The released rows are compared with the source recoded without noise, whose columns have the same names, by its classes
from `noise.statements.noise_classes` with the released labels as keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import WorkEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.engines.travel import row_count_column
from sqlanon.noise.columns import noisy_columns
from sqlanon.noise.statements import (
    STEPS,
    NoisyColumn,
    as_number,
    as_released_type,
    is_usable,
    noise_classes,
    round_to_step,
)
from sqlanon.release.manifest import Manifest
from sqlanon.release.visible_values import count_different_rows
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.checks import SOURCE_PREFIX, Check, source_check
from sqlanon.support.expressions import (
    Namer,
    all_of,
    as_column,
    col,
    fragment,
    ident,
    null_safe_equal,
    number,
    select,
    subquery,
    template,
)

# An end shows the size of noise only if there is noise, and if values on both sides of it may be released.
_IS_OPEN = fragment(":delta > 0.0 AND (:end > :least AND :end < :most)")

FALSE_ALARM = 1e-9
"""Upper limit of the probability that correct noise of an attribute fails the check of its size (Bernstein's bound)."""


def count_combinations(relation: exp.Expr, names: Sequence[str], count: str) -> exp.Select:
    """The query for each combination of the columns without noise, with the number of its rows."""
    return template("SELECT :columns, count(*) AS :count FROM :rows GROUP BY :columns")(
        columns=[col(name) for name in names], count=ident(count), rows=relation
    )


def _is_in_class(quasi: int) -> exp.Expr:
    return all_of(null_safe_equal(col(f"code_{i}", "r"), col(f"code_{i}", "c")) for i in range(quasi))


def _impossible_values(
    released: exp.Expr, classes: exp.Table, quasi: int, columns: Sequence[NoisyColumn]
) -> exp.Select:
    """One row: the released rows outside all classes, and for each column the values that noise cannot draw in their
    class."""
    counts = []
    for j, column in enumerate(columns):
        y, low, step = col(f"y_{j}", "r"), col(f"low_{j}", "c"), col(f"step_{j}", "c")
        unrounded = exp.Paren(this=fragment("CASE WHEN :step IS NULL THEN :low ELSE :y END")(step=step, low=low, y=y))
        rounded = as_number(as_released_type(round_to_step(unrounded, step, column), column), column.type)
        # A value that is clamped to a bound need not be a multiple of the step.
        possible_values = (rounded, *map(number, column.released_range))
        is_possible = exp.or_(*(y.eq(value) for value in possible_values), copy=False)
        # NaN is impossible, because values outside the range are clamped.
        counts.append(fragment("count(*) FILTER (WHERE NOT coalesce((:is_possible), false))")(is_possible=is_possible))
    return template("""
        SELECT count(*) FILTER (WHERE c.class IS NULL), :counts
        FROM :released AS r
        LEFT JOIN :classes AS c ON :same
    """)(counts=counts, released=released, classes=classes, same=_is_in_class(quasi))


def _values_beyond_range(
    released: exp.Expr, records: exp.Table, classes: exp.Table, quasi: int, j: int, column: NoisyColumn
) -> tuple[exp.Select, exp.Select]:
    """Two queries: how many values are beyond the range of their class; and how many are expected to be, with the
    greatest variance of that number and the records of classes with noise.

    An end outside the released range of the column is left out.
    """
    low, delta, step = (col(f"{name}_{j}", "c") for name in ("low", "delta", "step"))
    # The ends are midway between two multiples of the step, so that rounding moves no value across them.
    lower = fragment("(floor(:low / :step) - 0.5) * :step")(low=low, step=step)
    upper = fragment("(ceil((:low + :delta) / :step) + 0.5) * :step")(low=low, delta=delta, step=step)
    least, most = column.released_range
    ends = {
        "lower": lower,
        "upper": upper,
        "lower_is_open": _IS_OPEN(delta=delta, end=lower, least=least, most=most),
        "upper_is_open": _IS_OPEN(delta=delta, end=upper, least=least, most=most),
        "same": _is_in_class(quasi),
    }
    observed = template("""
        SELECT count(*) FILTER (WHERE (:lower_is_open AND :y < :lower) OR (:upper_is_open AND :y > :upper))
        FROM :released AS r
        JOIN :classes AS c ON :same
    """)(**ends, y=col(f"y_{j}", "r"), released=released, classes=classes)
    x = col(f"x_{j}", "r")
    # Noise of scale b moves x beyond an end at the distance d with a probability of exp(−d/b) / 2.
    expected = template("""
        SELECT sum(p), sum(p * (1.0 - p)), count(*) FILTER (WHERE noisy)::BIGINT
        FROM (
            SELECT
                CASE WHEN :lower_is_open THEN exp(-((:x - :lower) / (:delta / :epsilon))) / 2.0 ELSE 0.0 END
                + CASE WHEN :upper_is_open THEN exp(-((:upper - :x) / (:delta / :epsilon))) / 2.0 ELSE 0.0 END AS p,
                :delta > 0.0 AS noisy
            FROM :records AS r
            JOIN :classes AS c ON :same
        ) AS p
    """)(**ends, x=x, delta=delta, epsilon=column.epsilon, records=records, classes=classes)
    return observed, expected


@dataclass(frozen=True)
class NoiseCheck:
    """Checks the ``released`` rows and their manifest against the source, ``recoded`` without noise."""

    engine: WorkEngine
    work: Namer
    search_input: SearchInput
    manifest: Manifest
    released: exp.Table
    recoded: exp.Table

    def checks(self) -> list[Check]:
        columns = noisy_columns(self.search_input.policy, self.search_input.source)
        return [self._check_columns_without_noise({column.name for column in columns}), *self._check_noise(columns)]

    def _check_columns_without_noise(self, noisy: set[str]) -> Check:
        """Check that the columns without noise have the recoded rows; or some of them, if rows were suppressed after
        noise."""
        types = {column.name: column.type for column in self.manifest.columns if column.name not in noisy}
        recoded, count = self.recoded, None
        if self.search_input.source.access == "remote":  # only counts of its rows are transferred
            count = row_count_column(types)
            query = count_combinations(self.recoded, list(types), count)
            recoded = StatementRunner(self.engine).create_table(self.work("counted_recoded"), query)
        added, missing = self.engine.rows(count_different_rows(self.released, recoded, types, count))[0]
        if self.search_input.policy.suppresses_after_noise:
            claim = "without noise, all released rows are in the source"
            failure = f"{added} released rows, without noise, are not in the source"
            return source_check("recoded source", not added, claim, failure)
        failure = "without noise, the rows do not match"
        return source_check("recoded source", not added and not missing, "without noise, the rows match", failure)

    def _check_noise(self, columns: tuple[NoisyColumn, ...]) -> list[Check]:
        runner, search_input = StatementRunner(self.engine), self.search_input
        quasi = [column.name for column in search_input.released_columns if column.quasi is not None]
        # Columns are named as in `noise.statements.records` and `noisy_records`, with labels in code_i.
        labels: list[exp.Expr] = [as_column(col(name), f"code_{i}") for i, name in enumerate(quasi)]
        values: list[exp.Expr] = []
        for j, column in enumerate(columns):
            values.append(as_column(col(column.name), f"value_{column.position}"))
            values.append(as_column(as_number(col(column.name), column.type), f"x_{j}"))
        query = select([*labels, *values], self.recoded.copy())
        query = query.where(all_of(is_usable(col(column.name), column) for column in columns), copy=False)
        records = runner.create_table(self.work("checked_records"), query)
        keys = {i: f"code_{i}" for i in range(len(quasi))}
        classes = runner.create_table(self.work("checked_classes"), noise_classes(records, keys, columns))
        noisy = [as_column(as_number(col(column.name), column.type), f"y_{j}") for j, column in enumerate(columns)]
        released = subquery(select([*(label.copy() for label in labels), *noisy], self.released.copy()), "r")
        unmatched, *impossible = self.engine.rows(_impossible_values(released, classes, len(quasi), columns))[0]
        failure = f"{unmatched} rows are in none of them"
        checks = [source_check("classes", not unmatched, "the same as those of the source", failure)]
        late = runner.count(records) - self.manifest.released_rows
        if self.manifest.confidence is not None:
            claim = f"{late} rows were suppressed after noise was drawn"
            checks.append(source_check("confidence", late >= 0, claim, f"{-late} rows more than the source gives"))
        for j, (name, column) in enumerate(zip(search_input.policy.noisy_attributes, columns, strict=True)):
            claim = "all values are possible in their class"
            failure = f"{impossible[j]} values are impossible in their class"
            checks.append(source_check(f"noise of {name}", not impossible[j], claim, failure))
            observed, expected = _values_beyond_range(released, records, classes, len(quasi), j, column)
            count = self.engine.rows(observed)[0][0]
            checks.append(_check_size(name, column.epsilon, late, count, *self.engine.rows(expected)[0]))
        return checks


def _check_size(
    name: str,
    epsilon: float,
    late: int,
    count: int,
    expected: float | None,
    variance: float | None,
    records: int,
) -> Check:
    """Check that noise has the size of its ε, by the number of values beyond the range of their class.

    The ``late`` rows, which were suppressed after noise was drawn, may have had any value.
    """
    title = f"{SOURCE_PREFIX}size of the noise of {name}"
    if not records:
        return Check(title, True, "no noise: all values of each class are equal")
    # A value is on a grid: it is less than two of its steps from where it would be without one.
    slack = records * epsilon / STEPS
    deviation = max(abs(count - (expected or 0.0)) - slack - late, 0.0)
    message = f"{count} of {records} values are beyond the range of their class (expected: {expected or 0.0:.1f}"
    message += f" of all; {late} were suppressed)" if late else ")"
    chance = 2 * math.exp(-(deviation**2) / (2 * ((variance or 0.0) + slack + deviation / 3))) if deviation else 1.0
    is_expected = chance >= FALSE_ALARM
    return Check(title, is_expected, f"{'as' if is_expected else 'not as'} expected for ε = {epsilon:g}: {message}")
