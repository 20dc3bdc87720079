"""The risk that each table adds: the share of persons who are unique by their rows in it.

Persons are compared by their own quasi-identifiers and by all their rows of a table, each with the quasi-identifiers of
the rows above it. Rows are compared by hashes, whose collisions these shares would not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.suggest.links import ProfiledTable
from sqlanon.suggest.person_tree import PersonTree
from sqlanon.suggest.propose import Proposal
from sqlanon.support.expressions import all_of, anonymous, as_column, col, cols, number, template


@dataclass(frozen=True)
class Uniqueness:
    """The persons who are unique by what others may know of them, as shares of all persons.

    Attributes
    ----------
    persons:
        The number of persons.
    persons_alone, all_tables:
        By their own quasi-identifiers, and by these with the rows of all tables.
    by_table:
        By their own quasi-identifiers with all their rows of a table.
    most_rows:
        By table, the most rows that one person has.
    """

    persons: int
    persons_alone: float
    all_tables: float
    by_table: Mapping[str, float]
    most_rows: Mapping[str, int]


_NUMBERED = template("""
    SELECT :keys, :person AS person, :code AS code
    FROM :rows AS child
    JOIN :parents AS parent ON :same
""")
# The order of a person's rows does not matter: sums of hashes are equal for equal multisets.
_SUMMARIES = template("""
    SELECT person, sum(hash(code)::HUGEINT) AS code, count(*) AS row_count
    FROM :rows AS linked_rows
    GROUP BY person
""")
_UNIQUE = template("""
    SELECT count(*) FILTER (WHERE person_count = 1), coalesce(sum(person_count), 0)
    FROM (SELECT count(*) AS person_count FROM :records AS records GROUP BY :codes) AS combinations
""")


def measure_uniqueness(tree: PersonTree, proposals: Sequence[Sequence[Proposal]]) -> Uniqueness:
    """Measure the shares of unique persons; creates ``risk_rows`` and ``risk_summary`` in the run of each table."""
    persons = tree.tables[0]
    runner, rows = StatementRunner(persons.run.engine), dict[str, exp.Table]()
    numbered = template("SELECT :keys, row_number() OVER () AS person, :code AS code FROM :rows AS child")
    rows[persons.name] = runner.create_table(
        persons.run.work("risk_rows"),
        numbered(keys=_keys(tree, persons), code=_hash(proposals[0]), rows=persons.run.source.relation),
    )
    records = template("SELECT person, code AS person_code FROM :persons AS persons")(persons=rows[persons.name])
    by_table: dict[str, float] = {}
    most_rows: dict[str, int] = {}
    codes = ["person_code"]
    persons_alone, count = _share_unique(runner, records, codes)
    for child, child_proposals in zip(tree.tables[1:], proposals[1:], strict=True):
        link = tree.links[child.name]
        code = _hash(child_proposals, [] if link.parent == persons.name else [col("code", "parent")])
        same = all_of(col(name, "child").eq(col(f"key_{i}", "parent")) for i, name in enumerate(link.columns))
        query = _NUMBERED(
            keys=_keys(tree, child), person=col("person", "parent"), code=code,
            rows=child.run.source.relation, parents=rows[link.parent], same=same,
        )  # fmt: skip
        rows[child.name] = runner.create_table(child.run.work("risk_rows"), query)
        summary = runner.create_table(child.run.work("risk_summary"), _SUMMARIES(rows=rows[child.name]))
        name = f"code_{len(codes)}"
        records = _add_summary(records, summary, name)
        codes.append(name)
        by_table[child.name] = _share_unique(runner, records.copy(), ["person_code", name])[0]
        most = template("SELECT coalesce(max(row_count), 0) FROM :summary AS s")(summary=summary)
        most_rows[child.name] = int(runner.fetch_rows(most, [])[0][0])
    all_tables = _share_unique(runner, records, codes)[0]
    return Uniqueness(count, persons_alone, all_tables, by_table, most_rows)


def _keys(tree: PersonTree, table_: ProfiledTable) -> list[exp.Expr]:
    return [as_column(col(name, "child"), f"key_{i}") for i, name in enumerate(tree.key_of(table_))]


def _hash(proposals: Sequence[Proposal], parent_codes: Sequence[exp.Expr] = ()) -> exp.Expr:
    """A number for each combination of quasi-identifiers, with the code of the row above."""
    names = [proposal.column.name for proposal in proposals if proposal.role == "quasi"]
    values = [*parent_codes, *cols(names, "child")]
    return anonymous("HASH", *values) if values else number(0)


def _add_summary(records: exp.Select, summary: exp.Table, name: str) -> exp.Select:
    query = template("""
        SELECT records.*, :code
        FROM :records AS records
        LEFT JOIN :summary AS summary ON records.person = summary.person
    """)
    return query(code=as_column(col("code", "summary"), name), records=records, summary=summary)


def _share_unique(runner: StatementRunner, records: exp.Select, codes: Sequence[str]) -> tuple[float, int]:
    """The share of persons whose codes no other person has, and the number of persons."""
    unique, persons = runner.fetch_rows(_UNIQUE(records=records, codes=cols(codes)), [])[0]
    return unique / max(1, persons), int(persons)
