"""The ledger: the releases that were published, and checks of later ones against them. It is in the catalog."""

from sqlanon.ledger.earlier import (
    EarlierRelease,
    find_base_publications,
    mark_released_rows,
    open_earlier_release,
    plan_marking,
)
from sqlanon.ledger.growth.marks import select_released_rows
from sqlanon.ledger.growth.source_change import (
    can_mark_rows,
    count_changes,
    measure_released_rows,
    recorded_publication,
)
from sqlanon.ledger.joint.audit import JointAudit
from sqlanon.ledger.publication import DraftEntry, LedgerEntry
from sqlanon.ledger.published_release import PublishedRelease, find_published_release
from sqlanon.ledger.recording import (
    check_against_ledger,
    find_publication,
    list_publications,
    read_ledger,
    recording_export,
)
from sqlanon.ledger.records import Export, Publication, warn_of_uncompared_export
from sqlanon.ledger.released_hierarchies import copy_released_hierarchies, have_same_labels, merge_hierarchies

__all__ = [
    "DraftEntry",
    "EarlierRelease",
    "Export",
    "JointAudit",
    "LedgerEntry",
    "Publication",
    "PublishedRelease",
    "can_mark_rows",
    "check_against_ledger",
    "copy_released_hierarchies",
    "count_changes",
    "find_base_publications",
    "find_publication",
    "find_published_release",
    "have_same_labels",
    "list_publications",
    "mark_released_rows",
    "measure_released_rows",
    "merge_hierarchies",
    "open_earlier_release",
    "plan_marking",
    "read_ledger",
    "recorded_publication",
    "recording_export",
    "select_released_rows",
    "warn_of_uncompared_export",
]
