"""The rows of a source that a release has, recoded as it shows them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlanon.errors import RelabelledError
from sqlanon.ledger.trees import changed_labels, trees_of
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.release.manifest import Manifest
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import col, create_table, template
from sqlanon.support.names import EARLIER

# The mark of the release is the first: the bit 1.
_RELEASED = template("SELECT * FROM :rows WHERE NOT (:mark & 1) = 0")


def rows_in_release(marked: exp.Table) -> exp.Select:
    return _RELEASED(rows=marked, mark=col(EARLIER))


def recode_released_rows(run: Run, prepared: SearchInput, levels: Mapping[str, int]) -> FullDomainRecoding:
    """The recoding of the source's rows that the first earlier release has.

    Makes ``released_rows``.
    """
    rows = run.work("released_rows")
    run.engine.execute(create_table(rows.copy(), rows_in_release(prepared.source.relation)))
    tops = tuple(hierarchy.top for hierarchy in prepared.hierarchies)
    return FullDomainRecoding(rows, prepared.released, prepared.attributes, tops, (*levels.values(), 0))


def refuse_changed_labels(run: Run, prepared: SearchInput, manifest: Manifest, run_id: str) -> None:
    """The source's values must have the labels that a release at one level an attribute gave them."""
    trees = trees_of(run, prepared.policy, run_id)
    levels_then = manifest.levels({name: tree.height for name, tree in trees.items()})
    levels_now = manifest.levels(prepared.heights)
    counts = {}
    for i, name in enumerate(prepared.policy.generalized):
        then, now = trees.get(name.lower()), prepared.hierarchies[i]
        level, level_now = levels_then.get(name), levels_now.get(name)
        if not level or level_now is None or then is None:
            continue
        label_now = col(f"level_{level_now}", "n") if level_now <= now.height else exp.null()
        query = changed_labels(then.table, now.table, col(f"level_{level}", "t"), label_now)
        if count := run.engine.rows(query)[0][0]:
            counts[name] = int(count)
    if counts:
        raise RelabelledError(counts)
