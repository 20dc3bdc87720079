"""Linked tables: one table of persons, and tables whose rows belong to them, released together.

`records` encodes the tables, `support` counts who shares what an attacker knows, `search` finds the generalization,
and `release` writes the tables with new keys.
"""
