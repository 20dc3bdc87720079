"""Find quasi-identifiers and likely identifiers in a table, and suggest a policy to start from."""

from sqlanon.suggest.distinction import find_distinction, refuse_size
from sqlanon.suggest.suggest import Location, Suggestion, suggest
from sqlanon.suggest.trials import Trial, try_strategies

__all__ = ["Location", "Suggestion", "Trial", "find_distinction", "refuse_size", "suggest", "try_strategies"]
