"""The ledger: what was published, and what later releases have to do with it. It is kept in the catalog."""

from sqlanon.ledger.based import based_on_earlier, beside_earlier, marking_statements, refuse_keys
from sqlanon.ledger.earlier import Earlier, opened
from sqlanon.ledger.exports import Export, compared_with_nothing, exports, recording_export
from sqlanon.ledger.joint_audit import JointAudit
from sqlanon.ledger.publication import LedgerEntry
from sqlanon.ledger.records import Publication, check_against_ledger, publication_of, publications
from sqlanon.ledger.trees import is_same_tree, tree_of_both, trees_of

__all__ = [
    "Earlier",
    "Export",
    "JointAudit",
    "LedgerEntry",
    "Publication",
    "based_on_earlier",
    "beside_earlier",
    "check_against_ledger",
    "compared_with_nothing",
    "exports",
    "is_same_tree",
    "marking_statements",
    "opened",
    "publication_of",
    "publications",
    "recording_export",
    "refuse_keys",
    "tree_of_both",
    "trees_of",
]
