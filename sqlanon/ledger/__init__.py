"""The ledger: the record of published releases in the catalog, and the checks of later releases against them."""

from sqlanon.ledger.earlier import find_base_publications, mark_released_rows, plan_marking
from sqlanon.ledger.growth.marks import select_released_rows
from sqlanon.ledger.growth.source_change import (
    can_mark_rows,
    count_changes,
    find_recorded_publication,
    measure_released_rows,
)
from sqlanon.ledger.joint.audit import JointAudit
from sqlanon.ledger.publication import DraftEntry, LedgerEntry
from sqlanon.ledger.published_release import PublishedRelease, find_published_release
from sqlanon.ledger.recording import check_against_ledger, find_publication, read_ledger, recording_export
from sqlanon.ledger.records import Export, Publication, warn_of_uncompared_export

__all__ = [
    "DraftEntry",
    "Export",
    "JointAudit",
    "LedgerEntry",
    "Publication",
    "PublishedRelease",
    "can_mark_rows",
    "check_against_ledger",
    "count_changes",
    "find_base_publications",
    "find_publication",
    "find_published_release",
    "find_recorded_publication",
    "mark_released_rows",
    "measure_released_rows",
    "plan_marking",
    "read_ledger",
    "recording_export",
    "select_released_rows",
    "warn_of_uncompared_export",
]
