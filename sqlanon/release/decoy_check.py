"""Checking a release with decoys against its source and the real rows, and against the catalog, which knows the
decoys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.decoys.draw import Decoys, count, figures_of_all
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.expressions import Namer, aliased, all_columns, all_of, col, named, number, same, select, subquery
from sqlanon.recode.recoding import FullDomainRecoding
from sqlanon.recode.stage import Recoding
from sqlanon.release.check import AGAINST, Check, source_check
from sqlanon.release.manifest import Manifest
from sqlanon.release.row_differences import different_rows, same_to_readers, told_apart
from sqlanon.search.preparation import SearchInput


def minus(rows: exp.Table, others: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """The rows that others do not have, or not so often: a row that is there twice is two rows."""
    values = [(name, [col(name), *told_apart(col(name), type_)]) for name, type_ in types.items()]
    numbered = [named(one, f"c{i}_{j}") for i, (_, parts) in enumerate(values) for j, one in enumerate(parts)]
    own, theirs = (select([one.copy() for one in numbered], table.copy()) for table in (rows, others))
    rest = subquery(exp.Except(this=own, expression=theirs, distinct=False), "m")
    return select([named(col(f"c{i}_0"), name) for i, (name, _) in enumerate(values)], rest)


def surplus(rows: exp.Table, others: exp.Table, types: Mapping[str, str]) -> exp.Select:
    """One number: the rows that others do not have, or not so often."""
    return select([exp.Count(this=exp.Star())], subquery(minus(rows, others, types), "q"))


def short_classes(real: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """The classes of fewer than k real rows: ``q0``, ``q1``, ...: numbered, so that no name is taken twice."""
    too_few = exp.Count(this=exp.Star()) < number(k)
    output: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
    return select(output, real.copy(), [col(name) for name in quasi]).having(too_few, copy=False)


def part(rows: exp.Table, places: exp.Table, quasi: Mapping[str, str], within: bool) -> exp.Select:
    """The rows that are in some classes, or those that are not."""
    on = all_of(
        same_to_readers(col(name, "r"), col(f"q{i}", "p"), type_) for i, (name, type_) in enumerate(quasi.items())
    )
    query = select([all_columns("r")], aliased(rows, "r"))
    return query.join(aliased(places, "p"), on=on, join_type="semi" if within else "anti", copy=False)


def unfilled(places: exp.Table, among: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """One number: the classes that have not exactly k rows in the release."""
    right = exp.Count(this=exp.Star()).eq(number(k))
    filled = select([named(col(name), f"q{i}") for i, name in enumerate(quasi)], among.copy())
    filled = filled.group_by(*(col(name) for name in quasi), copy=False).having(right, copy=False)
    on = all_of(same(col(f"q{i}", "f"), col(f"q{i}", "p")) for i in range(len(quasi)))
    query = select([exp.Count(this=exp.Star())], aliased(places, "p"))
    return query.join(subquery(filled, "f"), on=on, join_type="anti", copy=False)


def strangers(rest: exp.Table, kept: exp.Query, name: str, type_: str) -> exp.Select:
    """One number: the rows whose value in a column no kept row has."""
    query = select([exp.Count(this=exp.Star())], aliased(rest, "d"))
    on = same_to_readers(col(name, "d"), col(name, "k"), type_)
    return query.join(subquery(kept, "k"), on=on, join_type="anti", copy=False)


def filled_again(steps: StatementRunner, prepared: SearchInput, recoding: Recoding) -> tuple[Decoys, Recoding]:
    """How many decoys a generalization needs; and what is released of the source: all but the decoys.

    Makes ``decoy_classes`` in the work schema.
    """
    plain = recoding.statement
    assert isinstance(plain, FullDomainRecoding)  # policies with decoys ask for nothing else
    missing, _ = count(steps, prepared, plain)
    if not missing["classes"]:
        return Decoys(0, 0, recoding.smallest_class), recoding
    decoys = Decoys(missing["decoys"], missing["classes"], missing["smallest"])
    figures = figures_of_all(steps, prepared, plain)
    return decoys, replace(recoding, figures=figures, statement=replace(plain, suppressed=None))


def claims_check(manifest: Manifest, decoys: Decoys) -> Check:
    """Whether a release has as many decoys as its source needs."""
    claimed = (manifest.decoys, manifest.decoy_classes, manifest.smallest_class_without_decoys)
    message = f"{decoys.rows} are needed in {decoys.classes} classes; without them the smallest has "
    found = (decoys.rows, decoys.classes, decoys.smallest_class_without)
    right = all(one in (None, other) for one, other in zip(claimed, found, strict=True)) and manifest.decoys is not None
    return source_check("decoys", right, f"{message}{decoys.smallest_class_without} rows")


@dataclass(frozen=True)
class DecoyCheck:
    """Checks that a release has all real rows, and decoys where they belong and nowhere else.

    Where no class was filled, the rows are the same. In the others, a few, what the release has beside the real rows
    are decoys. (A decoy may read like a real row. Then it does not matter
    which of them it is.)

    Attributes
    ----------
    steps, work:
        Where, and how tables are named.
    manifest:
        Of the release, which is verified.
    real, released:
        The source, recoded, and the rows of the release.
    """

    steps: StatementRunner
    work: Namer
    manifest: Manifest
    real: exp.Table
    released: exp.Table

    def checks(self) -> list[Check]:
        """Make ``decoy_places``, ``decoys_beside``, ``decoys_among`` and ``decoys_found`` in the work schema: the
        classes that lack rows, what is real and what is released there, and the rest, which are decoys."""
        steps, quasi, k = self.steps, self._quasi, self.manifest.policy["privacy"]["k"]
        places = steps.make(self.work("decoy_places"), short_classes(self.real, list(quasi), k))
        beside = steps.make(self.work("decoys_beside"), part(self.real, places, quasi, within=True))
        among = steps.make(self.work("decoys_among"), part(self.released, places, quasi, within=True))
        rest = steps.make(self.work("decoys_found"), minus(among, beside, self._types))
        found = steps.count(rest)
        # What the release has beside the rest are rows of both.
        all_there = steps.count(among) - found == steps.count(beside)
        wrong = steps.ask(unfilled(places, among, list(quasi), k), [(0,)])[0][0]
        values = [name for name in self._types if name not in quasi]
        strange = found and [one for one in values if self._is_strange(rest, places, one)]
        return [
            source_check("recoded source", all_there and self._same_elsewhere(places), "its rows are in the release"),
            source_check("rows of nobody", found == self.manifest.decoys, f"{found} rows are not the source's: decoys"),
            source_check("filled classes", not wrong, f"each class that lacked rows has {k}"),
            source_check("values of decoys", not strange, "they are those of rows in classes that need none"),
        ]

    def recorded(self, table: exp.Table | None) -> Check:
        """Whether the decoys that `checks` found are those that the catalog has."""
        if table is None:
            message = "not recorded: the catalog has no decoys of this release, or cannot be read now"
            return Check(f"{AGAINST}decoys in the catalog", None, message)
        rest = self.work("decoys_found")
        pairs = ((rest, table), (table, rest))
        wrong = sum(self.steps.ask(surplus(*pair, self._types), [(0,)])[0][0] for pair in pairs)
        return source_check("decoys in the catalog", not wrong, "they are the rows that are not the source's")

    @property
    def _types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.manifest.columns}

    @property
    def _quasi(self) -> dict[str, str]:
        types = self._types
        return {name: types[name] for name in self.manifest.quasi}

    def _is_strange(self, rest: exp.Table, places: exp.Table, name: str) -> bool:
        kept = part(self.real, places, self._quasi, within=False)
        return bool(self.steps.ask(strangers(rest, kept, name, self._types[name]), [(0,)])[0][0])

    def _same_elsewhere(self, places: exp.Table) -> bool:
        """Whether the release has the real rows, and no others, in all other classes."""
        real, released = (
            subquery(part(rows, places, self._quasi, within=False), "r") for rows in (self.real, self.released)
        )
        return self.steps.ask(different_rows(released, real, self._types), [(0, 0)])[0] == (0, 0)
