"""The plan of linked tables: the stages with their statements, from the schemas alone. No row is read.

Counts on which statements depend have example values: 100,000 rows of each table, and one round of each loop.
"""

from __future__ import annotations

import math

from sqlglot import exp

from sqlanon.engines.statement_runner import Plan
from sqlanon.linked.check.kept_rows import KeptRows, StoredRows
from sqlanon.linked.check.peeling import Peeling
from sqlanon.linked.publish.recode import LinkedRecoding
from sqlanon.linked.records import LinkedRecords, encode_bound_tables
from sqlanon.linked.release.views import KNOWN_ROWS, WHOLE_ROWS
from sqlanon.linked.search import suppressed_figures
from sqlanon.linked.tables import LinkedTable, bind_tables
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_sections import Known
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements.macros import call_digest
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.examples import find_lattice_size
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import anonymous, col, ident, number, quote_name, select, text


def plan_linked(workspace: Workspace, policy: LinkedPolicy) -> Plan:
    """List the stages of `anonymize_linked` and `publish_linked` with their statements."""
    recorded: list[str] = []
    tables = bind_tables(workspace, policy, counted=True, recorded=recorded)
    runner = tables[0].runner
    runner.stages += [stage for table in tables for stage in table.run.source.plan()]
    source = tables[0].run.source
    translated = f"; {source.location} gets all statements in its own dialect" if source.access == "remote" else ""
    note = f"numbers for persons and rows, keys that identify no row, rows without a person{translated}"
    runner.finish_stage("link", note)
    records = encode_bound_tables(policy, tables)
    moved = "dates moved by random days, " if policy.shift is not None else ""
    runner.finish_stage("encode", f"{moved}hierarchies over the values of each quasi-identifier, and the codes of rows")
    _show_publication(records, _show_search(records))
    sizes, unknown = _find_lattice_size(tables)
    nodes = None if unknown else math.prod(sizes)
    return Plan(tuple(runner.stages), nodes, tuple(unknown), STRATEGIES[policy.search.strategy].traits.is_local)


def _find_lattice_size(tables: list[LinkedTable]) -> tuple[list[int], list[str]]:
    """The numbers of generalizations of the tables that the policy determines, and what leaves the others open."""
    sizes: list[int] = []
    unknown: list[str] = []
    for table in tables:
        size, names = find_lattice_size(table.policy, table.run.engine)
        sizes += [] if size is None else [size]
        unknown += [f"{table.name}.{name}" for name in names]
    return sizes, unknown


def _example_levels(records: LinkedRecords) -> Levels:
    """Every quasi-identifier at level 1, or at the lowest level that the policy permits."""
    return tuple(
        max(lowest, min(1, attribute.height))
        for lowest, attribute in zip(records.lattice.bottom, records.attributes, strict=True)
    )


def _show_search(records: LinkedRecords) -> KeptRows:
    """Record one check of a generalization, and how the best one is stored; return what would stay there."""
    policy, levels = records.policy, _example_levels(records)
    peeling = Peeling(records, policy.privacy.k, policy.privacy.known)
    peeling.suppress_rows_and_persons(levels, records.persons, records.allowed_rows)
    suppressed_figures(peeling.snapshot.kept_rows, levels)
    StoredRows(records).store(levels, peeling.snapshot.kept_rows)
    strategy = STRATEGIES[policy.search.strategy]
    check = "a check like this, one round of each step, for every generalization that bounds leave open"
    if strategy.traits.is_local:
        check += "; then rounds, which are not shown, divide the persons"
    earlier = "" if policy.release is None or policy.release.after is None else "; first one of the earlier release"
    records.runner.finish_stage("search", f"strategy {policy.search.strategy}: {check}{earlier}")
    return peeling.snapshot.kept_rows


def _show_publication(records: LinkedRecords, kept_rows: KeptRows) -> None:
    """Record the statements of the released rows, and of their verification."""
    runner, recoding = records.runner, LinkedRecoding(kept_rows, _example_levels(records))
    recoding.create_surrogates()
    for table in records.tables:
        runner.record(recoding.select_rows(table))
    runner.finish_stage(
        "recode and suppress", "new keys; the rows of each table, here: at level 1, or the lowest allowed"
    )
    for table in records.tables:
        runner.record(call_digest(quote_name(table.name)))
    runner.record(select([col("k")], exp.Table(this=_call_macro(records.policy.privacy.known), db=ident("sqlanon"))))
    runner.finish_stage("verify and publish", "by the written rows alone, before all tables appear at once")


def _call_macro(known: Known) -> exp.Expr:
    """The call of the macro that finds the smallest group."""
    if known == "all":
        return anonymous("relational_k", text(WHOLE_ROWS))
    return anonymous("km_anonymity", text(KNOWN_ROWS), number(known))
