"""How a release is made of a source that was searched: its columns, what is checked of it, whose rows it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlanon.coding import KNOWN
from sqlanon.engines.dialects.postgres import landed
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.engines.travel import travelling
from sqlanon.expressions import cast, col, drop_table, named, select, subquery
from sqlanon.hierarchies.bounds import Kind
from sqlanon.hierarchies.parts import bounds_kind
from sqlanon.ledger import Together, secret_of
from sqlanon.pipeline import Chosen
from sqlanon.recode.recoding import AnyRecoding, Column
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.metadata import may_be_told
from sqlanon.release.metadata_views import suppressed_by
from sqlanon.release.requirements import needs_source
from sqlanon.release.source_audit import SourceAudit
from sqlanon.requirements import promised_k
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.earlier import KEY_HASH, key_hash
from sqlanon.sources.run import Run

if TYPE_CHECKING:
    from sqlanon.decoys import Filled
    from sqlanon.noise.stage import Noised

FEW = 1000
"""Labels that repeat so often that a column of them is best written as a dictionary."""


def ranges_of(prepared: SearchInput) -> dict[str, Kind]:
    """By column, in lower case, what the labels of an attribute are ranges of: of those whose rules, or whose strategy,
    make ranges of numbers or times."""
    policy, found = prepared.policy, dict[str, Kind]()
    summarised = policy.search.traits.summarises
    for name in policy.generalized:
        rules = {rule.kind for rule in policy.attributes[name].hierarchy or ()}
        type_ = next(its for column, its in prepared.source.columns.items() if column.lower() == name.lower())
        kind = bounds_kind(type_)
        if kind is not None and (summarised or rules & {"intervals", "dates"}):
            found[name.lower()] = kind
    return found


@dataclass(frozen=True)
class ReleaseDraft:
    """What was found, and what was done to it since.

    Attributes
    ----------
    run, prepared, chosen:
        Where, of what, and what was chosen.
    noised, filled:
        With noise, and with decoys; None without.
    """

    run: Run
    prepared: SearchInput
    chosen: Chosen
    noised: Noised | None = None
    filled: Filled | None = None

    @property
    def recoding(self) -> AnyRecoding:
        """How its rows are made."""
        return self.chosen.recoding if self.noised is None else self.noised.recoding

    @contextmanager
    def rows(self, shuffled: bool = True) -> Iterator[exp.Select]:
        """The statement that makes its rows here, in random order unless it is for checks; where the source is
        elsewhere, a relation that can be read once."""
        types = {one.name: one.type for one in self.columns()}
        with self.prepared.source.recoded(self.run.engine, self.recoding, types, shuffled) as relation:
            yield relation

    def rows_there(self) -> AbstractContextManager[exp.Query]:
        """The statement that makes its rows where the source is, while what it reads is there."""
        return self.prepared.source.rows_there(self.run.engine, self.recoding)

    def fill(self, server: PostgresEngine, address: str, target: exp.Table) -> None:
        """Fill a table in PostgreSQL with its rows, in the transaction that is open there."""
        source, types = self.prepared.source, {one.name: one.type for one in self.columns()}
        if source.server(PostgresEngine, address) is not None:
            with self.rows_there() as query:
                server.execute(exp.Insert(this=target, expression=query))
            return
        with self.rows() as rows, self.run.engine.stream(travelling(rows, types, "VARCHAR")) as reader:
            arrived = server.ingest("sqlanon_released_rows", reader)
        server.execute(exp.Insert(this=target, expression=landed(arrived, types)))
        server.execute(drop_table(arrived.copy()))

    def columns(self) -> tuple[ReleasedColumn, ...]:
        """The columns of the release, in its order."""
        roles = {name.lower(): attribute.role for name, attribute in self.prepared.policy.attributes.items()}
        source, recoding = self.prepared.source, self.recoding
        columns = []
        for column in recoding.columns:
            type_ = recoding.released_type(column, source.columns[column.name])
            columns.append(ReleasedColumn(column.name, type_, roles[column.name.lower()]))
        return tuple(columns)

    def repeating(self) -> list[str]:
        """The columns of text that has few values."""
        recoding = self.recoding
        counts = self.run.engine.rows(recoding.label_counts())[0]
        names = {column.quasi: column.name for column in recoding.columns if column.quasi is not None}
        few = {name for i, name in names.items() if counts[i] <= FEW}
        return [column.name for column in self.columns() if column.name in few and column.type == "VARCHAR"]

    def audit(self, claims: Manifest, together: Together | None) -> Callable[[exp.Table], Sequence[Check]] | None:
        """What is checked with the source, where a release alone does not show that it meets the policy; and with
        earlier releases. Of the claims, those count that are known before the rows are written."""
        run = self.run
        source: SourceAudit | None = None
        if needs_source(self.prepared.policy.privacy, self.prepared.policy.source.person is not None):
            plain, macros = self.chosen.recoding, run.install_macros()
            source = SourceAudit(run.engine, run.work, macros, self.prepared, self.recoding, plain, run.population)
        if source is None and (together is None or not together.has_checks):
            return None

        def audit(relation: exp.Table) -> Sequence[Check]:
            found = [] if source is None else source.checks(relation.sql(run.engine.dialect))
            if together is not None:
                found += together.checks(claims, relation)
            return found

        return audit

    def suppressed_by(self, released: exp.Table) -> list[tuple[str, str | None, int, int]]:
        """What may be told of the suppressed rows, by the released labels of one attribute: nothing of fewer than k.

        It is the first attribute that is not at its top: one in all releases of a policy, whatever its rows are. Those
        of two could be held against one another, where the one follows from the other. Where no one level was chosen
        for all rows, where rows are not persons, or are nobody's, and beside releases that readers have (versions that
        are kept, those that it is based on), nothing is told: their rows could be taken from the sums.
        """
        policy, suppressed = self.prepared.policy, self.chosen.figures.suppressed_rows
        told = policy.source.person is None and policy.population is None and not policy.noisy
        alone = not self.prepared.after and (policy.release is None or policy.release.keep == 1)
        if not told or not alone or policy.search.is_local or self.filled is not None or not suppressed:
            return []
        own = zip(self.prepared.own_attributes, self.chosen.generalization.values(), strict=True)
        below = [(attribute, level) for attribute, level in own if level is not None and level < attribute.height]
        if not below:
            return []
        attribute, level = below[0]
        least = promised_k(policy.privacy, policy.generalized)
        label = cast(col("value" if level == 0 else f"label_{level}"), "VARCHAR")
        query = suppressed_by(attribute.table, label, col(KNOWN), released.copy(), attribute.column, least)
        rows = self.run.engine.rows(query)
        labels = rows[0][-1] if rows else 0
        if not may_be_told([row[1] for row in rows], suppressed, labels, least):
            return []
        return [(attribute.column, value, left_out, kept) for value, left_out, kept, _ in rows]

    def keys(self, path: Path) -> exp.Query | None:
        """The hashes of the keys of the released rows, where the policy names a key."""
        key, recoding = self.prepared.columns.key, self.recoding
        if self.filled is not None and self.filled.recoding is not None:
            recoding = self.filled.recoding.real  # a decoy is nobody, and has none
        if not key:
            return None
        for name in key:
            recoding = recoding.with_column(Column(name))
        hashed = named(key_hash(key, secret_of(self.run.engine, path)), KEY_HASH)
        return select([hashed], subquery(recoding.select(shuffled=False), "released"))
