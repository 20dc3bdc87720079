"""Linked tables: one table of persons, and tables whose rows belong to them, released together.

`tables` binds the tables and numbers their rows, `records` encodes them, `snapshot` counts who shares what an attacker
knows, `search` and `mondrian` find the generalization, `recode` makes the rows with new keys, and `publish` writes them
to one of the `targets`. `release` is what the written tables consist of; `attacks` measures what they reveal.
"""
