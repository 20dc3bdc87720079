"""Checks of decoys in a release against the real rows of its source, and against the decoys in the catalog.

Unfilled classes have the same rows in both; in filled classes, the additional rows are decoys. If a decoy equals a real
row, either of them may count as the decoy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.decoys.draw import Decoys, count_vulnerable_classes, unsuppressed_figures
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.recode.stage import Recoding
from sqlanon.release.manifest import Manifest
from sqlanon.release.visible_values import count_different_rows, distinguishing_parts, look_equal
from sqlanon.requirements.audit import Queryable
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.checks import SOURCE_PREFIX, Check, source_check
from sqlanon.support.coding import quasi_column
from sqlanon.support.expressions import (
    Namer,
    all_of,
    as_column,
    col,
    null_safe_equal,
    row_count,
    subquery,
    template,
    union_all,
)

_CATALOG_CHECK_NAME = "decoys in the catalog"
CATALOG_CHECK = f"{SOURCE_PREFIX}{_CATALOG_CHECK_NAME}"
"""The check that compares with the catalog: a changed source alone does not explain its failure."""


@dataclass(frozen=True)
class Claim:
    """A check against the source by a query that counts the violating rows."""

    name: str
    claim: str
    violations: exp.Select

    def check(self, engine: Queryable) -> Check:
        return source_check(self.name, not engine.rows(self.violations)[0][0], self.claim)


def subtract_rows(rows: exp.Table, subtracted: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """The rows of one relation without those of another, as multisets."""
    values = [
        as_column(part, f"c{i}_{j}")
        for i, (name, type_) in enumerate(types.items())
        for j, part in enumerate([col(name), *distinguishing_parts(col(name), type_)])
    ]
    columns = [as_column(col(f"c{i}_0"), name) for i, name in enumerate(types)]
    return template("""
        SELECT :columns
        FROM (SELECT :values FROM :rows EXCEPT ALL SELECT :values FROM :subtracted) AS m
    """)(columns=columns, values=values, rows=rows, subtracted=subtracted)


def count_surplus_rows(rows: exp.Table, subtracted: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """The query for the number of rows that are left of one relation without those of another, as multisets."""
    return row_count(rows=subquery(subtract_rows(rows, subtracted, types), "q"))


def count_foreign_values(decoys: exp.Table, real: exp.Query, name: str, type_: str) -> exp.Select:
    """The query for the number of decoys with a value in a column that no real row has."""
    return template("SELECT count(*) AS foreign_values FROM :decoys AS d ANTI JOIN :real AS k ON :same")(
        decoys=decoys, real=real, same=look_equal(col(name, "d"), col(name, "k"), type_)
    )


def recount_decoys(runner: StatementRunner, search_input: SearchInput, recoding: Recoding) -> tuple[Decoys, Recoding]:
    """Count the decoys that a generalization needs, and return the recoding of the real rows of the release.

    Creates ``decoy_classes`` in the work schema.
    """
    statement = recoding.statement
    assert isinstance(statement, FullDomainRecoding)  # policies with decoys need a full-domain strategy
    vulnerable, _ = count_vulnerable_classes(runner, search_input, statement)
    if not vulnerable["classes"]:
        return Decoys(0, 0, recoding.smallest_class), recoding
    decoys = Decoys(vulnerable["decoys"], vulnerable["classes"], vulnerable["smallest"])
    figures = unsuppressed_figures(runner, search_input, statement)
    return decoys, replace(recoding, figures=figures, statement=replace(statement, suppressed=None))


def check_decoy_claims(manifest: Manifest, decoys: Decoys) -> Check:
    """Check that a release claims the right number of decoys."""
    message = f"{decoys.rows} needed in {decoys.classes} classes; without them, the smallest class has "
    return source_check("decoys", manifest.decoys == decoys.rows, f"{message}{decoys.smallest_class_without} rows")


_SMALL_CLASSES = template("SELECT :keys FROM :real GROUP BY :quasi_identifiers HAVING count(*) < :k")
_ROWS_OF_CLASSES = template("SELECT r.* FROM :rows AS r SEMI JOIN :classes AS p ON :same")
_ROWS_OF_OTHER_CLASSES = template("SELECT r.* FROM :rows AS r ANTI JOIN :classes AS p ON :same")
_DIFFERENCES = template("""
    SELECT l.lacking + d.added + d.missing
    FROM (SELECT count(*) AS lacking FROM :lacking AS q) AS l
    CROSS JOIN :further_classes AS d
""")


@dataclass(frozen=True)
class DecoyCheck:
    """Checks that a release has all ``real`` rows, those of the recoded source, and decoys only in small classes."""

    runner: StatementRunner
    work: Namer
    manifest: Manifest
    real: exp.Table
    released: exp.Table

    def checks(self) -> list[Check]:
        """Check the decoys.

        Creates in the work schema ``small_classes`` (those with fewer than k real rows), their real and released rows,
        ``real_rows_of_small_classes`` and ``released_rows_of_small_classes``, and the difference, ``audited_decoys``.
        """
        runner, types, k = self.runner, self.manifest.types, self.manifest.policy["privacy"]["k"]
        quasi_identifiers = self.manifest.quasi_identifiers
        columns = [col(name) for name in quasi_identifiers]
        # Numbered key columns cannot collide with names of released columns.
        keys = [as_column(col(name), quasi_column(i)) for i, name in enumerate(quasi_identifiers)]
        in_class = all_of(
            look_equal(col(name, "r"), col(quasi_column(i), "p"), types[name])
            for i, name in enumerate(quasi_identifiers)
        )
        same_class = all_of(
            null_safe_equal(col(quasi_column(i), "f"), col(quasi_column(i), "p")) for i in range(len(quasi_identifiers))
        )
        small_classes = runner.create_table(
            self.work("small_classes"),
            _SMALL_CLASSES(keys=keys, real=self.real, quasi_identifiers=columns, k=k),
        )
        real, released = (
            runner.create_table(self.work(name), _ROWS_OF_CLASSES(rows=rows, classes=small_classes, same=in_class))
            for name, rows in (
                ("real_rows_of_small_classes", self.real),
                ("released_rows_of_small_classes", self.released),
            )
        )
        decoys = runner.create_table(self.work("audited_decoys"), subtract_rows(released, real, types))
        further_real, further_released = (
            _ROWS_OF_OTHER_CLASSES(rows=rows, classes=small_classes, same=in_class)
            for rows in (self.real, self.released)
        )
        differences = _DIFFERENCES(
            lacking=subtract_rows(real, released, types),
            further_classes=count_different_rows(subquery(further_released, "r"), subquery(further_real, "r"), types),
        )
        unfilled = template("""
            SELECT count(*)
            FROM :small_classes AS p
            ANTI JOIN (
                SELECT :keys
                FROM :released
                GROUP BY :quasi_identifiers
                HAVING count(*) = :k
            ) AS f ON :same
        """)(
            small_classes=small_classes,
            keys=keys,
            released=released,
            quasi_identifiers=columns,
            k=k,
            same=same_class,
        )
        claims = [Claim("filled classes", f"each filled class has {k} rows", unfilled)]
        if foreign_values := [
            count_foreign_values(decoys, further_real, name, type_)
            for name, type_ in types.items()
            if name not in quasi_identifiers
        ]:
            query = template("SELECT coalesce(sum(foreign_values), 0) FROM :counts AS c")(
                counts=union_all(*foreign_values)
            )
            claims.append(Claim("values of decoys", "each is a value of a class without decoys", query))
        count = runner.count(decoys)
        return [
            Claim("recoded source", "all its rows are in the release", differences).check(runner.engine),
            source_check("invented rows", count == self.manifest.decoys, f"{count} rows are not in the source: decoys"),
            *(claim.check(runner.engine) for claim in claims),
        ]

    def check_recorded(self, recorded: exp.Table | None) -> Check:
        """Check that the decoys found by `checks` are those in the catalog."""
        if recorded is None:
            message = "the catalog has no decoys of this release, or cannot be read"
            return Check(CATALOG_CHECK, None, message)
        decoys = self.work("audited_decoys")
        differences = sum(
            self.runner.fetch_rows(count_surplus_rows(rows, subtracted, self.manifest.types), [(0,)])[0][0]
            for rows, subtracted in ((decoys, recorded), (recorded, decoys))
        )
        return source_check(_CATALOG_CHECK_NAME, not differences, "they are the rows that are not in the source")
