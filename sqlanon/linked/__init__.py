"""Linked tables: one table of persons, and tables whose rows belong to them, released together.

`tables` binds the tables and numbers their rows, `date_shifts` moves their dates, `records` encodes them. `check`
finds the persons and rows that stay at a generalization: what an attacker knows are `occurrences` and `signatures`,
`snapshot` counts who shares it, `peeling` and `row_suppression` find who and what can stay, `group_requirements` hold
for sensitive values (`group_conditions`), and the result is `kept_rows`. `search` finds the best generalization or else
raises an error of `infeasible`; `classes` have separate levels. In `publish`, `recode` makes the rows with new keys
and `labels`, `stage` publishes the `written_rows` to one of the `targets`, and `ledger` compares them with other
releases, also with the `earlier` one that they are made from. `release` is what the written tables consist of;
`attacks` measures what they reveal. `anonymize` runs the stages, `plan` lists their statements, `report` writes a page,
and `source_verification` compares a release with its source.
"""
