"""The ledger: what was published, and what later releases have to do with it. It is kept in the catalog."""

from sqlanon.ledger.based import based_on_earlier, beside_earlier, marking_statements, refuse_keys
from sqlanon.ledger.earlier import Earlier, opened
from sqlanon.ledger.exports import Export, compared_with_nothing, exports, recording_export
from sqlanon.ledger.intents import Places
from sqlanon.ledger.records import (
    Publication,
    check_against_ledger,
    publication_of,
    publications,
    recording,
    recording_replaced,
    secret_of,
)
from sqlanon.ledger.source_match import sample_of
from sqlanon.ledger.together import Together, held_against, released_row
from sqlanon.ledger.trees import is_same_tree, tree_of_both, trees_of

__all__ = [
    "Earlier",
    "Export",
    "Places",
    "Publication",
    "Together",
    "based_on_earlier",
    "beside_earlier",
    "check_against_ledger",
    "compared_with_nothing",
    "exports",
    "held_against",
    "is_same_tree",
    "marking_statements",
    "opened",
    "publication_of",
    "publications",
    "recording",
    "recording_export",
    "recording_replaced",
    "refuse_keys",
    "released_row",
    "sample_of",
    "secret_of",
    "tree_of_both",
    "trees_of",
]
