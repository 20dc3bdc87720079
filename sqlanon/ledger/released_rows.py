"""The rows of a source that a release has, recoded as it shows them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlanon.expressions import col, create_table, template
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger.trees import changed_labels
from sqlanon.policy.names import EARLIER
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.search.input import SearchInput
from sqlanon.sources.run import Run

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


def count_changed_labels(
    run: Run, prepared: SearchInput, trees: Mapping[str, Hierarchy], levels: Mapping[str, int]
) -> dict[str, int]:
    """By generalized attribute, the values with another label than under the hierarchies of a release; without those
    that have none."""
    changed_labels_of = {}
    for i, name in enumerate(prepared.policy.generalized):
        then = trees.get(name.lower())
        if levels[name] == 0 or then is None:
            continue
        level = f"level_{min(levels[name], then.height)}"
        query = changed_labels(then.table, prepared.hierarchies[i].table, level)
        if changed := run.engine.rows(query)[0][0]:
            changed_labels_of[name] = int(changed)
    return changed_labels_of
