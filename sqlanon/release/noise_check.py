"""The noise of a release, checked with its source: is each value one that noise can make, and is the noise of its size?

It compares the released rows with the source recoded without noise, which name columns alike, by the classes of the
latter, made by `noise.statements.classes` with the released labels as keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.engines.travel import count_column
from sqlanon.expressions import Namer, aliased, all_of, cast, col, is_null, named, number, same, select, subquery, where
from sqlanon.noise.columns import noisy_columns
from sqlanon.noise.statements import STEPS, NoisyColumn, as_number, classes, on_steps, typed, usable
from sqlanon.release.check import AGAINST, Check, source_check
from sqlanon.release.manifest import Manifest
from sqlanon.release.values import different_rows
from sqlanon.search.preparation import SearchInput


def counted(relation: exp.Expr, names: Sequence[str], count: str) -> exp.Select:
    """Each combination of the columns that have no noise, and how often it is there."""
    columns: list[exp.Expr] = [col(name) for name in names]
    output = [*columns, named(exp.Count(this=exp.Star()), count)]
    return select(output, relation.copy(), [column.copy() for column in columns])


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


def _in_classes(rows: exp.Expr, classes: exp.Table, quasi: int, output: list[exp.Expr], kind: str) -> exp.Select:
    on = all_of(same(col(f"code_{i}", "r"), col(f"code_{i}", "c")) for i in range(quasi))
    return select(output, aliased(rows, "r")).join(aliased(classes, "c"), on=on, join_type=kind, copy=False)


def impossible(released: exp.Expr, classes: exp.Table, quasi: int, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row: the released rows that are in no class; and for each column the values that noise makes in no class."""
    output: list[exp.Expr] = [where(exp.Count(this=exp.Star()), is_null(col("class", "c")))]
    for j, one in enumerate(columns):
        y, low, step = col(f"y_{j}", "r"), col(f"low_{j}", "c"), col(f"step_{j}", "c")
        still = is_null(step)
        meant = exp.If(this=still, true=low, false=y)
        shown = as_number(typed(on_steps(exp.Paren(this=meant), step.copy(), one), one), one.type)
        # What is cut off at a bound need not be on a step.
        meant_or_cut = [shown, *(number(limit) for limit in one.limits)]
        as_made = exp.Paren(this=exp.or_(*(y.eq(value) for value in meant_or_cut), copy=False))
        right = exp.Coalesce(this=as_made, expressions=[exp.false()])  # NaN is none of them, for it would be cut off
        output.append(where(exp.Count(this=exp.Star()), ~right))
    return _in_classes(released, classes, quasi, output, "left")


def _within(end: exp.Expr, least: exp.Expr, most: exp.Expr) -> exp.Expr:
    """Whether values on both sides of an end may be released: else what is cut off tells nothing of it."""
    above = end > least
    return exp.Paren(this=all_of([above, end < most]))


def beyond(
    released: exp.Expr, records: exp.Table, classes: exp.Table, quasi: int, j: int, column: NoisyColumn
) -> tuple[exp.Select, exp.Select]:
    """How many values are beyond the range of their class, and how many are to be: each one row, the second with the
    variance of that number at most, and the records that were looked at.

    The ends are midway between two multiples of the step, so that rounding moves no value across; an end that is not
    within the limits is left out. Noise of scale b takes x beyond an end that is d away with a probability of
    exp(−d/b) / 2.
    """
    delta, step = col(f"delta_{j}", "c"), col(f"step_{j}", "c")
    high = exp.Paren(this=col(f"low_{j}", "c") + delta)
    half = number(0.5)

    def midway(value: exp.Expr, rounding: type[exp.Expr], step_out: type[exp.Expr]) -> exp.Expr:
        steps = rounding(this=value / step)
        return exp.Paren(this=step_out(this=steps, expression=half.copy())) * step

    lower = exp.Paren(this=midway(col(f"low_{j}", "c"), exp.Floor, exp.Sub))
    upper = exp.Paren(this=midway(high, exp.Ceil, exp.Add))
    noisy = delta > 0.0
    least, most = (number(limit) for limit in column.limits)
    open_lower: list[exp.Expr] = [noisy, _within(lower, least, most)]
    open_upper: list[exp.Expr] = [noisy.copy(), _within(upper, least, most)]
    is_out = exp.or_(
        all_of([*open_lower, col(f"y_{j}", "r") < lower]),
        all_of([*open_upper, col(f"y_{j}", "r") > upper]),
        copy=False,
    )
    found = _in_classes(released, classes, quasi, [where(exp.Count(this=exp.Star()), is_out)], "inner")
    scale = exp.Paren(this=delta / number(column.epsilon))

    def chance(distance: exp.Expr, open_: list[exp.Expr]) -> exp.Expr:
        size = exp.Exp(this=exp.Neg(this=exp.Paren(this=distance) / scale))
        there = size / 2.0
        return exp.If(this=all_of(one.copy() for one in open_), true=there, false=number(0.0))

    x = col(f"x_{j}", "r")
    p = chance(x - lower, open_lower) + chance(upper - x, open_upper)
    each = _in_classes(records, classes, quasi, [named(p, "p"), named(noisy.copy(), "noisy")], "inner")
    rest = exp.Paren(this=number(1.0) - col("p"))
    sums: list[exp.Expr] = [
        exp.Sum(this=col("p")),
        exp.Sum(this=col("p") * rest),
        cast(where(exp.Count(this=exp.Star()), col("noisy")), "BIGINT"),
    ]
    return found, select(sums, subquery(each, "p"))


FALSE_ALARM = 1e-9
"""The chance that noise as it is claimed is found to be of another size is at most this for each attribute (Bernstein's
bound)."""


@dataclass(frozen=True)
class NoiseCheck:
    """What is checked.

    Attributes
    ----------
    engine, work:
        Where, and how tables are named.
    prepared, manifest:
        The source, and what the release claims.
    released, recoded:
        The rows of the release; those of the source, recoded without noise.
    """

    engine: Engine
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
            count = count_column(types)
            query = counted(self.recoded, list(types), count)
            recoded = StatementRunner(self.engine).make(self.work("counted_recoded"), query)
        extra, missing = self.engine.rows(different_rows(self.released, recoded, types, count))[0]
        return extra, missing

    def _others(self, columns: tuple[NoisyColumn, ...]) -> Check:
        """The columns without noise: the rows of the recoded source; some of them, if some were suppressed later."""
        noisy = {one.name for one in columns}
        extra, missing = self._differences(noisy)
        if self.prepared.policy.suppresses_last:
            message = "without noise, its rows are some of those of the release's source"
            return source_check(
                "recoded source", not extra, message, f"{extra} of its rows, without noise, are not the source's"
            )
        message = "without noise, it has the rows of the release"
        bad = "without noise, it has other rows than the release"
        return source_check("recoded source", not extra and not missing, message, bad)

    def _noise(self, columns: tuple[NoisyColumn, ...]) -> list[Check]:
        steps, prepared = StatementRunner(self.engine), self.prepared
        quasi = [column.name for column in prepared.released if column.quasi is not None]
        query = as_records(self.recoded, quasi, columns)
        query = query.where(all_of(usable(col(one.name), one) for one in columns), copy=False)
        records = steps.make(self.work("checked_records"), query)
        keys = {i: f"code_{i}" for i in range(len(quasi))}
        made = steps.make(self.work("checked_classes"), classes(records, keys, columns))
        released = subquery(as_noisy(self.released, quasi, columns), "r")
        lost, *wrong = self.engine.rows(impossible(released, made, len(quasi), columns))[0]
        found = [
            source_check(
                "classes", not lost, "the release has those of the source", f"{lost} rows are in none of its own"
            )
        ]
        late = steps.count(records) - self.manifest.released_rows
        if self.manifest.confidence is not None:
            found.append(self._late(late))
        for j, (name, one) in enumerate(zip(prepared.policy.noisy, columns, strict=True)):
            bad = f"{wrong[j]} values are none that noise makes in their class"
            found.append(source_check(f"noise of {name}", not wrong[j], "the values are such as noise makes", bad))
            out, expected = beyond(released, records, made, len(quasi), j, one)
            count = self.engine.rows(out)[0][0]
            found.append(self._size(name, one.epsilon, late, count, *self.engine.rows(expected)[0]))
        return found

    def _late(self, late: int) -> Check:
        """What is claimed to have been suppressed for confidence."""
        claimed = (self.manifest.confidence or {}).get("suppressed_rows", late)  # older releases say how many
        message = f"{late} rows were suppressed after noise was drawn"
        return source_check(
            "confidence", claimed == late, message, f"{claimed} are claimed, and {late} rows were suppressed"
        )

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
        title = f"{AGAINST}size of the noise of {name}"
        if not records:
            return Check(title, True, "there is none: in each class all values are equal")
        # A value is on a grid: it is less than two of its steps from where it would be without one.
        slack = records * epsilon / STEPS
        off = max(abs(count - (expected or 0.0)) - slack - late, 0.0)
        message = f"{count} of {records} values are beyond the range of their class, {expected or 0.0:.1f} are expected"
        if late:
            message += f" of all, and {late} were suppressed"
        chance = 2 * math.exp(-(off**2) / (2 * ((variance or 0.0) + slack + off / 3))) if off else 1.0
        if chance < FALSE_ALARM:
            return Check(title, False, f"not so: it is as ε = {epsilon:g} gives it: {message}")
        return Check(title, True, f"as ε = {epsilon:g} gives it: {message}")
