"""Checks of a release with decoys against the real rows of its source, and against the decoys in the catalog.

Classes that were not filled have the same rows. In filled classes, the additional rows are decoys. (If a decoy equals a
real row, either of them may count as the decoy.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.audit.check import SOURCE_PREFIX, Check, Claim, source_check
from sqlanon.audit.visible_values import count_different_rows, distinguishing_parts, look_equal
from sqlanon.decoys.draw import Decoys, count_vulnerable_classes, unsuppressed_figures
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.recode.stage import Recoding
from sqlanon.release.manifest import Manifest
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import Namer, all_of, col, named, row_count, same, subquery, template, union_all

_IN_CATALOG = "decoys in the catalog"
CATALOG_CHECK = f"{SOURCE_PREFIX}{_IN_CATALOG}"
"""The check that compares with the catalog: that the source has changed does not explain it alone."""

_MINUS = template("""
    SELECT :columns
    FROM (SELECT :values FROM :rows EXCEPT ALL SELECT :values FROM :others) AS m
""")
# Classes are numbered columns, so that no name is taken twice.
_SHORT_CLASSES = template("SELECT :keys FROM :real GROUP BY :quasi HAVING count(*) < :k")
_WITHIN = template("SELECT r.* FROM :rows AS r SEMI JOIN :places AS p ON :same")
_OUTSIDE = template("SELECT r.* FROM :rows AS r ANTI JOIN :places AS p ON :same")
_NOT_FILLED = template("""
    SELECT count(*)
    FROM :places AS p
    ANTI JOIN (SELECT :keys FROM :among GROUP BY :quasi HAVING count(*) = :k) AS f ON :same
""")
_STRANGERS = template("SELECT count(*) AS strangers FROM :decoys AS d ANTI JOIN :kept AS k ON :same")
_SUM = template("SELECT coalesce(sum(strangers), 0) FROM :counts AS c")
_NOT_IN_THE_RELEASE = template("""
    SELECT l.lacking + d.added + d.missing
    FROM (SELECT count(*) AS lacking FROM :lacking AS q) AS l
    CROSS JOIN :elsewhere AS d
""")


def subtract_rows(rows: exp.Table, others: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """The rows of one relation that the other lacks, as multisets."""
    values = [(name, [col(name), *distinguishing_parts(col(name), type_)]) for name, type_ in types.items()]
    numbered = [named(one, f"c{i}_{j}") for i, (_, parts) in enumerate(values) for j, one in enumerate(parts)]
    columns = [named(col(f"c{i}_0"), name) for i, name in enumerate(types)]
    return _MINUS(columns=columns, values=numbered, rows=rows, others=others)


def count_surplus_rows(rows: exp.Table, others: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """The number of rows that the other relation lacks, as multisets."""
    return row_count(rows=subquery(subtract_rows(rows, others, types), "q"))


def count_foreign_values(rest: exp.Table, kept: exp.Query, name: str, type_: str) -> exp.Select:
    """The number of rows with a value in a column that no kept row has."""
    on = look_equal(col(name, "d"), col(name, "k"), type_)
    return _STRANGERS(decoys=rest, kept=kept, same=on)


def recount_decoys(steps: StatementRunner, prepared: SearchInput, recoding: Recoding) -> tuple[Decoys, Recoding]:
    """The decoys that a generalization needs, and the real rows of the release.

    Makes ``decoy_classes`` in the work schema.
    """
    plain = recoding.statement
    assert isinstance(plain, FullDomainRecoding)  # policies with decoys need a full-domain strategy
    missing, _ = count_vulnerable_classes(steps, prepared, plain)
    if not missing["classes"]:
        return Decoys(0, 0, recoding.smallest_class), recoding
    decoys = Decoys(missing["decoys"], missing["classes"], missing["smallest"])
    figures = unsuppressed_figures(steps, prepared, plain)
    return decoys, replace(recoding, figures=figures, statement=replace(plain, suppressed=None))


def check_decoy_claims(manifest: Manifest, decoys: Decoys) -> Check:
    """Whether a release has the right number of decoys."""
    message = f"{decoys.rows} needed in {decoys.classes} classes; without them, the smallest class has "
    return source_check("decoys", manifest.decoys == decoys.rows, f"{message}{decoys.smallest_class_without} rows")


@dataclass(frozen=True)
class DecoyCheck:
    """Checks that a release has all ``real`` rows, which are those of the source, recoded, and decoys where they belong
    and nowhere else."""

    steps: StatementRunner
    work: Namer
    manifest: Manifest
    real: exp.Table
    released: exp.Table

    def checks(self) -> list[Check]:
        """Make ``decoy_places``, ``decoys_beside``, ``decoys_among`` and ``decoys_found`` in the work schema: the
        classes that lack rows, what is real and what is released there, and the rest, which are decoys."""
        steps, types, quasi, k = (
            self.steps,
            self._types,
            self.manifest.quasi_identifiers,
            self.manifest.policy["privacy"]["k"],
        )
        columns = [col(name) for name in quasi]
        keys = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
        on = all_of(look_equal(col(name, "r"), col(f"q{i}", "p"), types[name]) for i, name in enumerate(quasi))
        filled = all_of(same(col(f"q{i}", "f"), col(f"q{i}", "p")) for i in range(len(quasi)))

        short = _SHORT_CLASSES(keys=keys, real=self.real, quasi=columns, k=k)
        places = steps.make(self.work("decoy_places"), short)
        beside = steps.make(self.work("decoys_beside"), _WITHIN(rows=self.real, places=places, same=on))
        among = steps.make(self.work("decoys_among"), _WITHIN(rows=self.released, places=places, same=on))
        rest = steps.make(self.work("decoys_found"), subtract_rows(among, beside, types))

        real, released = (_OUTSIDE(rows=rows, places=places, same=on) for rows in (self.real, self.released))
        elsewhere = count_different_rows(subquery(released, "r"), subquery(real, "r"), types)
        foreign = [count_foreign_values(rest, real, name, types[name]) for name in types if name not in quasi]
        claims = [
            Claim(
                "recoded source",
                "all its rows are in the release",
                _NOT_IN_THE_RELEASE(lacking=subtract_rows(beside, among, types), elsewhere=elsewhere),
            ),
            Claim(
                "filled classes",
                f"each filled class has {k} rows",
                _NOT_FILLED(places=places, keys=keys, among=among, quasi=columns, k=k, same=filled),
            ),
        ]
        if foreign:
            words = "each is a value of a class without decoys"
            claims.append(Claim("values of decoys", words, _SUM(counts=union_all(*foreign))))
        found = steps.count(rest)
        words = f"{found} rows are not in the source: decoys"
        first, *others = (claim.check(steps.engine) for claim in claims)
        return [first, source_check("invented rows", found == self.manifest.decoys, words), *others]

    def recorded(self, table: exp.Table | None) -> Check:
        """Whether the decoys that `checks` found are those that the catalog has."""
        if table is None:
            message = "the catalog has no decoys of this release, or cannot be read"
            return Check(CATALOG_CHECK, None, message)
        rest = self.work("decoys_found")
        pairs = ((rest, table), (table, rest))
        wrong = sum(self.steps.ask(count_surplus_rows(*pair, self._types), [(0,)])[0][0] for pair in pairs)
        return source_check(_IN_CATALOG, not wrong, "they are the rows that are not in the source")

    @property
    def _types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.manifest.columns}
