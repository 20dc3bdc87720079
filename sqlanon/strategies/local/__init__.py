"""Recoding below the full domain: rows or values of an attribute have separate levels. One module per strategy."""
