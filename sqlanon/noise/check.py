"""The noise of a release, checked with its source: what `verify` cannot tell from the release alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.noise.columns import noisy_columns
from sqlanon.preparation import Prepared
from sqlanon.queries import noise_check as nc
from sqlanon.queries.macros import digest_of
from sqlanon.queries.names import Namer, all_of, col, create_temporary_view, drop_view, select, table
from sqlanon.queries.noise import NoisyColumn, classes, usable
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.steps import Steps

FALSE_ALARM = 1e-9
"""The chance that noise as it is claimed is found too small, or too large, is at most this for each attribute."""


@dataclass(frozen=True)
class NoiseCheck:
    """What is checked.

    Attributes
    ----------
    engine, work, macros:
        Where, how tables are named, and the database that has the macro library.
    prepared, manifest:
        The source, and what the release claims.
    released, recoded:
        The rows of the release; those of the source, recoded without noise.
    """

    engine: Engine
    work: Namer
    macros: str
    prepared: Prepared
    manifest: Manifest
    released: exp.Table
    recoded: exp.Table

    def checks(self) -> list[Check]:
        """All that can be told."""
        policy, source = self.prepared.policy, self.prepared.source
        columns = noisy_columns(policy, source)
        return [self._others(columns), *self._noise(columns)]

    @property
    def is_late(self) -> bool:
        """Whether some rows were suppressed after noise was drawn: which ones depends on it."""
        policy = self.prepared.policy
        unknown = any(policy.attributes[name].on_unknown == "suppress" for name in policy.noisy)
        return policy.privacy.confidence is not None or unknown

    def _others(self, columns: tuple[NoisyColumn, ...]) -> Check:
        """The columns without noise: the rows of the recoded source; some of them, if some were suppressed later."""
        noisy = {one.name for one in columns}
        names = [column.name for column in self.prepared.released if column.name not in noisy]
        if self.is_late:
            extra = self.engine.rows(nc.rows_too_many(self.released, self.recoded, names))[0][0]
            message = "without noise, its rows are some of those of the release's source"
            return _told(
                "recoded source", not extra, message, f"{extra} of its rows, without noise, are not the source's"
            )
        digests = []
        for i, relation in enumerate((self.released, self.recoded)):
            view = table(f"sqlanon_without_noise_{i}", "main", "temp")
            self.engine.execute(create_temporary_view(view, nc.without(relation, names)))
            try:
                digests.append(self.engine.rows(digest_of(view.sql(self.engine.dialect), self.macros))[0])
            finally:
                self.engine.execute(drop_view(view.copy()))
        same = digests[0] == digests[1]
        message = "without noise, it has the rows of the release"
        return _told("recoded source", same, message, "without noise, it has other rows than the release")

    def _noise(self, columns: tuple[NoisyColumn, ...]) -> list[Check]:
        steps, prepared = Steps(self.engine), self.prepared
        quasi = [column.name for column in prepared.released if column.quasi is not None]
        query = nc.as_records(self.recoded, quasi, columns)
        query = query.where(all_of(usable(col(one.name), one.type) for one in columns), copy=False)
        records = steps.make(self.work("checked_records"), query)
        keys = {i: f"code_{i}" for i in range(len(quasi))}
        made = steps.make(self.work("checked_classes"), classes(records, keys, columns))
        compared = steps.make(self.work("checked_noise"), nc.compared(self.released, records, made, quasi, columns))
        names, found = dict(zip(columns, prepared.policy.noisy, strict=True)), []
        for j, one in enumerate(columns):
            sums: list[exp.Expr] = [exp.Sum(this=col(name)) for name in (f"off_{j}", f"cut_{j}", "rows")]
            off, cut, rows = self.engine.rows(select(sums, compared.copy()))[0]
            told = f"{off or 0} values of {names[one]} are on no grid of their class, or beyond their bounds"
            found.append(_told(f"noise of {names[one]}", not off, "the values are where noise may put them", told))
            if rows != self.manifest.released_rows:
                found.append(_told(f"classes of {names[one]}", False, "", "some rows are in no class of the source"))
            found.append(self._size(steps, compared, j, one, names[one], bool(cut)))
        return found

    def _size(self, steps: Steps, compared: exp.Table, j: int, column: NoisyColumn, name: str, is_cut: bool) -> Check:
        """Whether noise is of the size that its ε gives it."""
        title = f"against the source: size of the noise of {name}"
        by_noise = self.prepared.policy.privacy.confidence is not None
        if by_noise or is_cut:
            why = "records were suppressed by their noise" if by_noise else "bounds cut it off"
            return Check(title, None, f"not verifiable: {why}")
        figures = steps.figures(nc.sizes(compared, j, column.epsilon))
        count = figures["classes"]
        small, large = (_chance(count, figures[way] or 0.0) for way in ("small", "large"))
        if min(small, large) < FALSE_ALARM:
            word = "smaller" if small < large else "larger"
            return Check(title, False, f"not so: it is {word} than ε = {column.epsilon:g} gives, in {count} classes")
        message = f"as ε = {column.epsilon:g} gives it, in {count} classes (false alarms: {2 * FALSE_ALARM:g})"
        return Check(title, True, message)


def _told(name: str, passed: bool, good: str, bad: str) -> Check:
    return Check(f"against the source: {name}", passed, good if passed else f"not so: {bad}")


def _chance(count: int, total: float) -> float:
    """At most so probable is it that −Σ ln U reaches a total, for independent U that are uniform or larger (Chernoff).

    >>> round(_chance(10, 10.0), 3), _chance(10, 100.0) < 1e-20
    (1.0, True)
    """
    if total <= count or not count:
        return 1.0
    return math.exp(-(total - count - count * math.log(total / count)))
