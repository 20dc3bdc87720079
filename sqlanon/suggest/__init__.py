"""Find quasi-identifiers and likely identifiers in a table, and suggest a policy to start from."""

from sqlanon.suggest.distinction import find_distinction, refuse_size
from sqlanon.suggest.linked import is_of_tables, suggest_tables
from sqlanon.suggest.suggest import Location, Suggestion, suggest
from sqlanon.suggest.trials import Trial, try_strategies

__all__ = [
    "Location", "Suggestion", "Trial", "find_distinction", "is_of_tables", "refuse_size", "suggest", "suggest_tables",
    "try_strategies",
]  # fmt: skip
