"""The ledger: the releases that were published, and checks of later ones against them. It is in the catalog."""

from sqlanon.ledger.earlier import Earlier, earlier_publications, mark_earlier, opened, show_marking
from sqlanon.ledger.growth.released_rows import rows_in_release
from sqlanon.ledger.growth.source_change import (
    can_mark_rows,
    count_changes,
    measure_released_rows,
    recorded_publication,
)
from sqlanon.ledger.joint.audit import JointAudit
from sqlanon.ledger.publication import DraftEntry, LedgerEntry
from sqlanon.ledger.published_release import PublishedRelease, published_release
from sqlanon.ledger.recording import (
    check_against_ledger,
    history,
    publication_of,
    publications,
    recording_export,
)
from sqlanon.ledger.records import Export, Publication, compared_with_nothing
from sqlanon.ledger.trees import is_same_tree, tree_of_both, trees_of

__all__ = [
    "DraftEntry",
    "Earlier",
    "Export",
    "JointAudit",
    "LedgerEntry",
    "Publication",
    "PublishedRelease",
    "can_mark_rows",
    "check_against_ledger",
    "compared_with_nothing",
    "count_changes",
    "earlier_publications",
    "history",
    "is_same_tree",
    "mark_earlier",
    "measure_released_rows",
    "opened",
    "publication_of",
    "publications",
    "published_release",
    "recorded_publication",
    "recording_export",
    "rows_in_release",
    "show_marking",
    "tree_of_both",
    "trees_of",
]
