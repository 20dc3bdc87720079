"""The noise of a release, checked with its source: what `verify` cannot tell from the release alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.travel import count_column
from sqlanon.expressions import Namer, all_of, col, subquery
from sqlanon.noise import check_statements as nc
from sqlanon.noise.columns import noisy_columns
from sqlanon.noise.noisy_column import NoisyColumn, usable
from sqlanon.noise.statements import STEPS, classes
from sqlanon.release.check import AGAINST, Check, source_check
from sqlanon.release.manifest import Manifest
from sqlanon.release.row_differences import different_rows
from sqlanon.search.preparation import Prepared
from sqlanon.statement_runner import Steps

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
    prepared: Prepared
    manifest: Manifest
    released: exp.Table
    recoded: exp.Table

    def checks(self) -> list[Check]:
        """All that can be told."""
        policy, source = self.prepared.policy, self.prepared.source
        columns = noisy_columns(policy, source)
        return [self._others(columns), *self._noise(columns)]

    def _differences(self, noisy: set[str]) -> tuple[int, int]:
        """How many rows are in the release alone, and in the recoded source alone, without the columns with noise."""
        types = {column.name: column.type for column in self.manifest.columns if column.name not in noisy}
        recoded, count = self.recoded, None
        if self.prepared.source.spark is not None:  # of its rows only what is counted comes here
            count = count_column(types)
            query = nc.counted(self.recoded, list(types), count)
            recoded = Steps(self.engine).make(self.work("counted_recoded"), query)
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
        steps, prepared = Steps(self.engine), self.prepared
        quasi = [column.name for column in prepared.released if column.quasi is not None]
        query = nc.as_records(self.recoded, quasi, columns)
        query = query.where(all_of(usable(col(one.name), one) for one in columns), copy=False)
        records = steps.make(self.work("checked_records"), query)
        keys = {i: f"code_{i}" for i in range(len(quasi))}
        made = steps.make(self.work("checked_classes"), classes(records, keys, columns))
        released = subquery(nc.as_noisy(self.released, quasi, columns), "r")
        lost, *wrong = self.engine.rows(nc.impossible(released, made, len(quasi), columns))[0]
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
            out, expected = nc.beyond(released, records, made, len(quasi), j, one)
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
        told = f"{count} of {records} values are beyond the range of their class, {expected or 0.0:.1f} are expected"
        if late:
            told += f" of all, and {late} were suppressed"
        chance = 2 * math.exp(-(off**2) / (2 * ((variance or 0.0) + slack + off / 3))) if off else 1.0
        if chance < FALSE_ALARM:
            return Check(title, False, f"not so: it is as ε = {epsilon:g} gives it: {told}")
        return Check(title, True, f"as ε = {epsilon:g} gives it: {told}")
