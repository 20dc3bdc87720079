"""Checks of noise against the source: whether each value is possible, and whether the noise has the right size.

It compares the released rows with the source recoded without noise, which name columns alike, by the classes of the
latter, from `noise.statements.classes` with the released labels as keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.audit.check import SOURCE_PREFIX, Check, source_check
from sqlanon.audit.visible_values import count_different_rows
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
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import (
    Namer,
    all_of,
    col,
    fragment,
    ident,
    named,
    number,
    same,
    select,
    subquery,
    template,
)

_COUNTED = template("SELECT :columns, count(*) AS :count FROM :rows GROUP BY :columns")

_IMPOSSIBLE = template("""
    SELECT count(*) FILTER (WHERE c.class IS NULL), :wrong
    FROM :released AS r
    LEFT JOIN :classes AS c ON :same
""")
_MEANT = fragment("CASE WHEN :step IS NULL THEN :low ELSE :y END")
# NaN is none of the values, for it would be cut off.
_NOT_AS_DRAWN = fragment("count(*) FILTER (WHERE NOT coalesce((:is_one_of), false))")

# Ends of the range of a class: midway between two multiples of the step, so that rounding moves no value across.
_LOWER = fragment("(floor(:low / :step) - 0.5) * :step")
_UPPER = fragment("(ceil((:low + :delta) / :step) + 0.5) * :step")
# Whether there is noise, and values on both sides of an end may be released: else what is cut off says nothing of it.
_OPEN = fragment(":delta > 0.0 AND (:end > :least AND :end < :most)")
_BEYOND = template("""
    SELECT count(*) FILTER (WHERE (:lower_is_open AND :y < :lower) OR (:upper_is_open AND :y > :upper))
    FROM :released AS r
    JOIN :classes AS c ON :same
""")
# Noise of scale b takes x beyond an end that is d away with a probability of exp(−d/b) / 2.
_EXPECTED = template("""
    SELECT sum(p), sum(p * (1.0 - p)), count(*) FILTER (WHERE noisy)::BIGINT
    FROM (
        SELECT
            CASE WHEN :lower_is_open THEN exp(-((:x - :lower) / (:delta / :epsilon))) / 2.0 ELSE 0.0 END
            + CASE WHEN :upper_is_open THEN exp(-((:upper - :x) / (:delta / :epsilon))) / 2.0 ELSE 0.0 END AS p,
            :delta > 0.0 AS noisy
        FROM :records AS r
        JOIN :classes AS c ON :same
    ) AS p
""")


def counted(relation: exp.Expr, names: Sequence[str], count: str) -> exp.Select:
    """Each combination of the columns that have no noise, and how often it is there."""
    return _COUNTED(columns=[col(name) for name in names], count=ident(count), rows=relation)


def as_records(recoded: exp.Expr, quasi: Sequence[str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """The recoded source under the names of `noise.statements.records`; with labels in ``code_i``."""
    output: list[exp.Expr] = [named(col(name), f"code_{i}") for i, name in enumerate(quasi)]
    for j, one in enumerate(columns):
        value = col(one.name)
        output += [named(value, f"value_{one.place}"), named(as_number(value.copy(), one.type), f"x_{j}")]
    return select(output, recoded.copy())


def as_noisy(released: exp.Expr, quasi: Sequence[str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """The release under the names of `noise.statements.noisy`; with labels in ``code_i``."""
    output: list[exp.Expr] = [named(col(name), f"code_{i}") for i, name in enumerate(quasi)]
    output += [named(as_number(col(one.name), one.type), f"y_{j}") for j, one in enumerate(columns)]
    return select(output, released.copy())


def _in_class(quasi: int) -> exp.Expr:
    return all_of(same(col(f"code_{i}", "r"), col(f"code_{i}", "c")) for i in range(quasi))


def impossible(released: exp.Expr, classes: exp.Table, quasi: int, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row: the released rows that are in no class; and for each column the values that noise draws in no class."""
    wrong = []
    for j, one in enumerate(columns):
        y, low, step = col(f"y_{j}", "r"), col(f"low_{j}", "c"), col(f"step_{j}", "c")
        meant = exp.Paren(this=_MEANT(step=step, low=low, y=y))
        rounded = as_number(as_released_type(round_to_step(meant, step, one), one), one.type)
        # What is cut off at a bound need not be on a step.
        possible = exp.or_(*(y.eq(value) for value in (rounded, *map(number, one.released_range))), copy=False)
        wrong.append(_NOT_AS_DRAWN(is_one_of=possible))
    return _IMPOSSIBLE(wrong=wrong, released=released, classes=classes, same=_in_class(quasi))


def beyond(
    released: exp.Expr, records: exp.Table, classes: exp.Table, quasi: int, j: int, column: NoisyColumn
) -> tuple[exp.Select, exp.Select]:
    """How many values are beyond the range of their class, and how many should be: each one row, the second with the
    variance of that number at most, and the records of classes with noise. An end that is not within the limits is left
    out."""
    low, delta, step = (col(f"{name}_{j}", "c") for name in ("low", "delta", "step"))
    lower, upper = _LOWER(low=low, step=step), _UPPER(low=low, delta=delta, step=step)
    least, most = column.released_range
    ends = {
        "lower": lower,
        "upper": upper,
        "lower_is_open": _OPEN(delta=delta, end=lower, least=least, most=most),
        "upper_is_open": _OPEN(delta=delta, end=upper, least=least, most=most),
        "same": _in_class(quasi),
    }
    found = _BEYOND(**ends, y=col(f"y_{j}", "r"), released=released, classes=classes)
    x = col(f"x_{j}", "r")
    return found, _EXPECTED(**ends, x=x, delta=delta, epsilon=column.epsilon, records=records, classes=classes)


FALSE_ALARM = 1e-9
"""The chance that noise as it is claimed is found to be of another size is at most this for each attribute (Bernstein's
bound)."""


@dataclass(frozen=True)
class NoiseCheck:
    """Checks the ``released`` rows, and what the manifest claims of them, against the source, ``recoded`` without
    noise."""

    engine: WorkEngine
    work: Namer
    prepared: SearchInput
    manifest: Manifest
    released: exp.Table
    recoded: exp.Table

    def checks(self) -> list[Check]:
        policy, source = self.prepared.policy, self.prepared.source
        columns = noisy_columns(policy, source)
        return [self._others(columns), *self._noise(columns)]

    def _differences(self, noisy: set[str]) -> tuple[int, int]:
        """How many rows are in the release alone, and in the recoded source alone, without the columns with noise."""
        types = {column.name: column.type for column in self.manifest.columns if column.name not in noisy}
        recoded, count = self.recoded, None
        if self.prepared.source.access == "remote":  # of its rows only what is counted comes here
            count = row_count_column(types)
            query = counted(self.recoded, list(types), count)
            recoded = StatementRunner(self.engine).make(self.work("counted_recoded"), query)
        extra, missing = self.engine.rows(count_different_rows(self.released, recoded, types, count))[0]
        return extra, missing

    def _others(self, columns: tuple[NoisyColumn, ...]) -> Check:
        """The columns without noise: the rows of the recoded source; some of them, if some were suppressed later."""
        noisy = {one.name for one in columns}
        extra, missing = self._differences(noisy)
        if self.prepared.policy.suppresses_after_noise:
            message = "without noise, all released rows are in the source"
            return source_check(
                "recoded source", not extra, message, f"{extra} released rows, without noise, are not in the source"
            )
        message = "without noise, the rows match"
        bad = "without noise, the rows do not match"
        return source_check("recoded source", not extra and not missing, message, bad)

    def _noise(self, columns: tuple[NoisyColumn, ...]) -> list[Check]:
        steps, prepared = StatementRunner(self.engine), self.prepared
        quasi = [column.name for column in prepared.released_columns if column.quasi is not None]
        query = as_records(self.recoded, quasi, columns)
        query = query.where(all_of(is_usable(col(one.name), one) for one in columns), copy=False)
        records = steps.make(self.work("checked_records"), query)
        keys = {i: f"code_{i}" for i in range(len(quasi))}
        checked = steps.make(self.work("checked_classes"), noise_classes(records, keys, columns))
        released = subquery(as_noisy(self.released, quasi, columns), "r")
        lost, *wrong = self.engine.rows(impossible(released, checked, len(quasi), columns))[0]
        found = [
            source_check("classes", not lost, "the same as those of the source", f"{lost} rows are in none of them")
        ]
        late = steps.count(records) - self.manifest.released_rows
        if self.manifest.confidence is not None:
            found.append(self._late(late))
        for j, (name, one) in enumerate(zip(prepared.policy.noisy_attributes, columns, strict=True)):
            bad = f"{wrong[j]} values are impossible in their class"
            found.append(source_check(f"noise of {name}", not wrong[j], "all values are possible in their class", bad))
            out, expected = beyond(released, records, checked, len(quasi), j, one)
            count = self.engine.rows(out)[0][0]
            found.append(self._size(name, one.epsilon, late, count, *self.engine.rows(expected)[0]))
        return found

    def _late(self, late: int) -> Check:
        message = f"{late} rows were suppressed after noise was drawn"
        return source_check("confidence", late >= 0, message, f"{-late} rows more than the source gives")

    def _size(
        self,
        name: str,
        epsilon: float,
        late: int,
        count: int,
        expected: float | None,
        variance: float | None,
        records: int,
    ) -> Check:
        """Whether noise is of the size that its ε gives it, by how many values are beyond the range of their class.

        Those that were suppressed after it was drawn may have been any of them.
        """
        title = f"{SOURCE_PREFIX}size of the noise of {name}"
        if not records:
            return Check(title, True, "no noise: all values of each class are equal")
        # A value is on a grid: it is less than two of its steps from where it would be without one.
        slack = records * epsilon / STEPS
        off = max(abs(count - (expected or 0.0)) - slack - late, 0.0)
        message = f"{count} of {records} values are beyond the range of their class (expected: {expected or 0.0:.1f}"
        message += f" of all, of which {late} were suppressed)" if late else ")"
        chance = 2 * math.exp(-(off**2) / (2 * ((variance or 0.0) + slack + off / 3))) if off else 1.0
        if chance < FALSE_ALARM:
            return Check(title, False, f"not as expected for ε = {epsilon:g}: {message}")
        return Check(title, True, f"as expected for ε = {epsilon:g}: {message}")
