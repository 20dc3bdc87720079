"""Finding quasi-identifiers: what tells rows apart, what looks like an identifier, and a policy to start from."""

from sqlanon.suggest.distinction import find_distinction, refuse_size
from sqlanon.suggest.suggest import Place, Suggestion, asks_nothing, policy_of_any_columns, suggest
from sqlanon.suggest.trials import Trial, try_strategies

__all__ = [
    "Place",
    "Suggestion",
    "Trial",
    "asks_nothing",
    "find_distinction",
    "policy_of_any_columns",
    "refuse_size",
    "suggest",
    "try_strategies",
]
