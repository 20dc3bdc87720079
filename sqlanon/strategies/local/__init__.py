"""Recoding below the full domain: each row, or each value, has a level of its own. A module a strategy."""
