"""The ledger: what was published, and what later releases have to do with it. It is kept in the catalog."""

from sqlanon.ledger.based import based_on_earlier
from sqlanon.ledger.records import Publication, publications, record, runs_before, secret_of
from sqlanon.ledger.together import NewRelease, Together, standing

__all__ = [
    "NewRelease",
    "Publication",
    "Together",
    "based_on_earlier",
    "publications",
    "record",
    "runs_before",
    "secret_of",
    "standing",
]
