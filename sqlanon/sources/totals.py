"""The words that mark a row of totals."""

TOTAL_WORDS = (
    "(?i)(?:(?:(?:grand|sub)[ -]?)?total(?:s|e|en)?|totaal|sums?|summe|(?:ins)?gesamt(?:summe|zahl)?|somme|ensemble|"
    "suma|somma|razem) ?:?"
)
"""The pattern of such a value without the spaces around it, for Python and for DuckDB."""
