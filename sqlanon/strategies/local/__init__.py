"""Recoding below the full domain: rows or values of an attribute have levels of their own. One module a strategy."""
