"""An attack that joins child rows: how many persons match what an attacker knows of a person.

The attacker knows a person's quasi-identifiers and some of the person's child rows, and looks for the persons with the
same quasi-identifiers who have these rows. The worst rows of each person are known: those that the fewest persons have.
The attacked persons may be those of a source, with the labels of a release, and the searched persons those of the
release. Counts combinations without the code of the search, so that an error there cannot hide itself.

Tables: ``rows_N`` (``row_key``, ``parent_key``, ``row_values``) for each table of a database, ``persons`` (``person``,
``class_values``), ``known_rows`` (``person``, ``position`` of the table, ``known_row``) and ``whole_rows``, in which a
row has the rows that belong to it; ``matches``: ``person``, ``class_id``, and the fewest persons who match, or NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine, replace_table
from sqlanon.linked.publish.labels import join_labels, label_at_level
from sqlanon.linked.release.row_texts import TextTable, describe_known_rows, describe_whole_rows, quote_values
from sqlanon.linked.tables import LinkedTable
from sqlanon.policy.linked_sections import Known
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    Namer,
    as_column,
    cast,
    col,
    cols,
    equal_values,
    row_count,
    select_star,
    table,
    template,
    union_all,
)

MAX_ATTACKED_PERSONS = 100_000
"""Maximum number of persons who are attacked: of more, the same random sample on every run."""

_SEED = 36

_NO_ROWS = template("SELECT row_key AS person, 0::TINYINT AS position, '' AS known_row FROM :rows AS r WHERE false")
_KNOWN_ROWS = template("SELECT person, :position::TINYINT AS position, known_row FROM :rows AS r")
_WHOLE_ROWS = template("""
    SELECT parent_key AS person, :position::TINYINT AS position, whole_row AS known_row FROM :rows AS r
""")
_SAMPLE = template("""
    SELECT person, class_values
    FROM :persons AS persons
    ORDER BY md5(concat(:seed, '/', person)), person
    LIMIT :most
""")
_CLASSES = template("""
    SELECT class_values, row_number() OVER ()::INTEGER AS class_id
    FROM (SELECT DISTINCT class_values FROM :persons AS persons) AS classes
""")
_PERSONS_OF_CLASSES = template("""
    SELECT persons.person, classes.class_id
    FROM :persons AS persons
    JOIN :classes AS classes ON persons.class_values = classes.class_values
""")
_NUMBERED_ROWS = template("""
    SELECT class_id, known_row, row_number() OVER () AS row_id
    FROM (
        SELECT DISTINCT persons.class_id, r.known_row
        FROM :rows AS r
        JOIN :persons AS persons ON r.person = persons.person
    ) AS distinct_rows
""")
# Equal rows of a person are numbered up to the number of rows that an attacker knows.
_OCCURRENCES = template("""
    WITH counted AS (
        SELECT r.person, persons.class_id, numbers.row_id, least(count(*), :copies) AS copies
        FROM :rows AS r
        JOIN :persons AS persons ON r.person = persons.person
        JOIN :numbers AS numbers ON persons.class_id = numbers.class_id AND r.known_row = numbers.known_row
        GROUP BY r.person, persons.class_id, numbers.row_id
    )
    SELECT person, class_id, row_id AS known_row, unnest(range(1, copies + 1))::SMALLINT AS copy
    FROM counted
""")
# 0 is the number of all rows that no attacked person has.
_SIGNATURES = template("""
    WITH numbered AS (
        SELECT r.person, coalesce(numbers.row_id, 0) AS row_id
        FROM :rows AS r
        JOIN :persons AS p ON r.person = p.person
        LEFT JOIN :numbers AS numbers ON p.class_id = numbers.class_id AND r.known_row = numbers.known_row
    ),
    listed AS (
        SELECT person, list_sort(list(row_id)) AS row_ids FROM numbered GROUP BY person
    )
    SELECT persons.person, persons.class_id, coalesce(listed.row_ids, []) AS signature
    FROM :persons AS persons
    LEFT JOIN listed ON persons.person = listed.person
""")
_SINGLES = template("""
    SELECT person, class_id, known_row AS row_1, copy AS copy_1 FROM :occurrences AS a WHERE copy = 1
""")

# A combination lists its rows in ascending order. The second copy of a row follows the first.
_PAIRS = template("""
    SELECT
        a.person, a.class_id, a.known_row AS row_1, a.copy AS copy_1, b.known_row AS row_2, b.copy AS copy_2
    FROM :occurrences AS a
    JOIN :occurrences AS b ON a.person = b.person AND (
        (b.known_row > a.known_row AND b.copy = 1) OR (b.known_row = a.known_row AND b.copy = 2)
    )
    WHERE a.copy = 1
""")

_TRIPLES = template("""
    SELECT
        a.person, a.class_id, a.known_row AS row_1, a.copy AS copy_1, b.known_row AS row_2, b.copy AS copy_2,
        c.known_row AS row_3, c.copy AS copy_3
    FROM :occurrences AS a
    JOIN :occurrences AS b ON a.person = b.person AND (
        (b.known_row > a.known_row AND b.copy = 1) OR (b.known_row = a.known_row AND b.copy = 2)
    )
    JOIN :occurrences AS c ON a.person = c.person AND (
        (c.known_row > b.known_row AND c.copy = 1) OR (c.known_row = b.known_row AND c.copy = b.copy + 1)
    )
    WHERE a.copy = 1
""")

COMBINATIONS = {1: _SINGLES, 2: _PAIRS, 3: _TRIPLES}
"""By size, the combinations of known rows that persons support: ``person``, ``class_id``, and ``row_i`` and ``copy_i``
for each known row."""


def match_keys(size: int) -> list[str]:
    """The columns that identify a combination of a size."""
    return ["class_id", *(f"{part}_{i}" for i in range(1, size + 1) for part in ("row", "copy"))]


_MATCHES_OF_CLASSES = template("""
    SELECT persons.person, persons.class_id, classes.matches
    FROM :persons AS persons
    LEFT JOIN (
        SELECT class_id, count(*) AS matches FROM :targets AS t GROUP BY class_id
    ) AS classes ON persons.class_id = classes.class_id
""")
# A person whom one person matches already is not attacked with more rows.
_MATCHES_OF_COMBINATIONS = """
    WITH hidden AS (
        SELECT person FROM :matches AS m WHERE matches > 1
    ),
    hidden_rows AS (
        SELECT * FROM :occurrences AS o SEMI JOIN hidden USING (person)
    ),
    target_rows AS (
        SELECT * FROM :targets AS t SEMI JOIN hidden_rows USING (class_id, known_row)
    ),
    combinations AS (:combinations),
    target_combinations AS (:target_combinations),
    shared AS (
        SELECT :keys, count(*) AS persons FROM target_combinations AS t GROUP BY :keys
    ),
    fewest AS (
        SELECT c.person, min(shared.persons) AS persons
        FROM combinations AS c
        JOIN shared ON :same
        GROUP BY c.person
    )
    SELECT m.person, m.class_id, least(m.matches, fewest.persons) AS matches
    FROM :matches AS m
    LEFT JOIN fewest ON m.person = fewest.person
"""
_MATCHES_OF_SIGNATURES = template("""
    WITH shared AS (
        SELECT class_id, signature, count(*) AS persons FROM (:target_signatures) AS t GROUP BY class_id, signature
    )
    SELECT m.person, m.class_id, least(m.matches, shared.persons) AS matches
    FROM :matches AS m
    JOIN (:signatures) AS s ON m.person = s.person
    LEFT JOIN shared ON s.class_id = shared.class_id AND s.signature = shared.signature
""")
_FIGURES = template("""
    SELECT
        count(*) AS persons,
        count(matches) AS matched_persons,
        count(*) FILTER (WHERE matches = 1) AS unique_persons,
        count(*) FILTER (WHERE matches < :k) AS persons_below_k,
        min(matches) AS fewest_matches,
        coalesce(avg(coalesce(1 / matches, 0)), 0)::DOUBLE AS average_risk
    FROM :matches AS m
""")


@dataclass(frozen=True)
class VisibleTable:
    """A table as an attacker sees it.

    Attributes
    ----------
    name, parent:
        Its name, and the position of its parent table; None for the table of persons.
    engine:
        The engine that reads its rows.
    rows:
        ``row_key``, ``parent_key`` and the quasi-identifiers ``value_0``, ``value_1``, ...
    """

    name: str
    parent: int | None
    engine: Engine
    rows: exp.Select

    @property
    def described_rows(self) -> exp.Select:
        """The rows with their values as one text, which differs if any value differs: ``row_values``."""
        names = [name for name in self.rows.named_selects if name.startswith("value_")]
        described = template("SELECT row_key, parent_key, :values AS row_values FROM :rows AS r")
        return described(values=quote_values(names), rows=self.rows)


@dataclass(frozen=True)
class PersonRecords:
    """The persons of a database with their child rows, as texts, in tables of a run."""

    persons: exp.Table
    known_rows: exp.Table
    whole_rows: exp.Table


@dataclass(frozen=True)
class Matches:
    """The numbers of persons who match an attacker's knowledge.

    Attributes
    ----------
    known:
        The child rows of a person that the attacker knows: up to a number, or all.
    persons, matched_persons, unique_persons, persons_below_k:
        The attacked persons; of these, those whom any person matches, those whom one person matches, and those whom
        fewer than k persons match.
    fewest_matches:
        The fewest persons who match; None without matches.
    average_risk:
        The mean of 1 / matches over the attacked persons; 0 for persons without matches.
    """

    known: Known
    persons: int
    matched_persons: int
    unique_persons: int
    persons_below_k: int
    fewest_matches: int | None
    average_risk: float

    @property
    def share(self) -> float:
        """The share of the attacked persons whom one person matches."""
        return self.unique_persons / self.persons if self.persons else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        highest_risk = 1 / self.fewest_matches if self.fewest_matches else 0.0
        return {**asdict(self), "share": self.share, "highest_risk": highest_risk}


def list_knowledge(known: Known) -> list[Known]:
    """The child rows that attackers know: 0, 1, 2, as many as the policy says, and all."""
    counts: set[int] = set() if known == "all" else {known}
    return [*sorted({0, 1, 2} | counts), "all"]


class MatchingRun:
    """Counts matches in tables of an engine, which ``work`` names."""

    def __init__(self, engine: Engine, work: Namer, most_attacked: int = MAX_ATTACKED_PERSONS) -> None:
        self.engine, self.work, self.most_attacked = engine, work, most_attacked

    def create(self, name: str, query: exp.Query, engine: Engine | None = None) -> exp.Table:
        """Create an intermediate table, in place of an earlier one."""
        return replace_table(engine or self.engine, self.work(name), query)

    def describe(self, prefix: str, tables: Sequence[VisibleTable]) -> PersonRecords:
        """Create the records of the persons of a database; parents come before their children."""
        text_tables = []
        for i, visible_table in enumerate(tables):
            rows = self.create(f"{prefix}_rows_{i}", visible_table.described_rows, visible_table.engine)
            keys = col("row_key"), col("parent_key")
            text_tables.append(TextTable(visible_table.name, visible_table.parent, rows, *keys, col("row_values")))
        persons = template("SELECT row_key AS person, row_values AS class_values FROM :rows AS r")
        known_queries = [_NO_ROWS(rows=text_tables[0].rows)]
        whole_queries = [_NO_ROWS(rows=text_tables[0].rows)]
        for i, visible_table in enumerate(tables):
            if visible_table.parent is not None:
                known_queries.append(_KNOWN_ROWS(position=i, rows=describe_known_rows(text_tables, i)))
            if visible_table.parent == 0:
                whole_queries.append(_WHOLE_ROWS(position=i, rows=describe_whole_rows(text_tables, i)))
        return PersonRecords(
            self.create(f"{prefix}_persons", persons(rows=text_tables[0].rows)),
            self.create(f"{prefix}_known_rows", union_all(*known_queries)),
            self.create(f"{prefix}_whole_rows", union_all(*whole_queries)),
        )

    def copy(self, prefix: str, records: PersonRecords, engine: Engine) -> PersonRecords:
        """Copy records from the engine that has their database."""
        tables = []
        for name in ("persons", "known_rows", "whole_rows"):
            with engine.stream(select_star(getattr(records, name))) as rows:
                tables.append(self.engine.upload(f"{prefix}_{name}", rows))
        return PersonRecords(*tables)

    def count_matches(
        self,
        attacked: PersonRecords,
        searched: PersonRecords,
        knowledge: Sequence[Known],
        k: int = 1,
        position: int | None = None,
    ) -> list[Matches]:
        """Count the matches for each number of known rows, in ascending order; of one child table, if a position is
        given, which are then known without the rows that belong to them."""
        sample = self.create("attacked_sample", _SAMPLE(persons=attacked.persons, seed=_SEED, most=self.most_attacked))
        classes = self.create("attacked_classes", _CLASSES(persons=sample))
        persons = self.create("attacked_persons", _PERSONS_OF_CLASSES(persons=sample, classes=classes))
        targets = self.create("searched_persons", _PERSONS_OF_CLASSES(persons=searched.persons, classes=classes))
        matches = self.create("matches_0", _MATCHES_OF_CLASSES(persons=persons, targets=targets))
        known_rows = [_select_rows(records.known_rows, position) for records in (attacked, searched)]
        copies = max((known for known in knowledge if known != "all"), default=0)
        occurrences = self._create_occurrences(known_rows, [persons, targets], int(copies)) if copies else []
        results, size = [], 0
        for known in knowledge:
            if known == "all":
                is_flat = position is not None
                rows = known_rows if is_flat else [attacked.whole_rows, searched.whole_rows]
                matches = self.create("matches_all", self._match_signatures(rows, [persons, targets], matches))
            while known != "all" and size < int(known):
                size += 1
                matches = self.create(
                    f"matches_{size}", _match_combinations(size, occurrences[0], occurrences[1], matches)
                )
            names = ("persons", "matched_persons", "unique_persons", "persons_below_k", "fewest_matches")
            *counts, risk = self.engine.rows(_FIGURES(matches=matches, k=k))[0]
            results.append(Matches(known, **dict(zip(names, counts, strict=True)), average_risk=float(risk)))
        return results

    def count_persons(self, records: PersonRecords) -> int:
        """The number of persons."""
        return int(self.engine.rows(row_count(rows=records.persons))[0][0])

    def _create_occurrences(
        self, rows: Sequence[exp.Expr], persons: Sequence[exp.Table], copies: int
    ) -> list[exp.Table]:
        """The occurrences of the attacked and of the searched persons, in rows that attacked persons have."""
        numbers = self.create("attacked_numbers", _NUMBERED_ROWS(rows=rows[0], persons=persons[0]))
        return [
            self.create(
                f"{side}_occurrences",
                _OCCURRENCES(rows=side_rows, persons=side_persons, numbers=numbers, copies=copies),
            )
            for side, side_rows, side_persons in zip(("attacked", "searched"), rows, persons, strict=True)
        ]

    def _match_signatures(
        self, rows: Sequence[exp.Expr], persons: Sequence[exp.Table], matches: exp.Table
    ) -> exp.Select:
        numbers = self.create("attacked_numbers", _NUMBERED_ROWS(rows=rows[0], persons=persons[0]))
        signatures, target_signatures = (
            _SIGNATURES(rows=side_rows, persons=side_persons, numbers=numbers)
            for side_rows, side_persons in zip(rows, persons, strict=True)
        )
        return _MATCHES_OF_SIGNATURES(signatures=signatures, target_signatures=target_signatures, matches=matches)


def _select_rows(rows: exp.Table, position: int | None) -> exp.Expr:
    if position is None:
        return rows
    return template("SELECT person, known_row FROM :rows AS r WHERE position = :position")(rows=rows, position=position)


def _match_combinations(size: int, occurrences: exp.Table, targets: exp.Table, matches: exp.Table) -> exp.Select:
    keys = match_keys(size)
    return template(_MATCHES_OF_COMBINATIONS)(
        matches=matches,
        occurrences=occurrences,
        targets=targets,
        combinations=COMBINATIONS[size](occurrences=table("hidden_rows")),
        target_combinations=COMBINATIONS[size](occurrences=table("target_rows")),
        keys=cols(keys),
        same=equal_values(keys, "c", "shared"),
    )


# --- The tables of a source


def source_tables(tables: Sequence[LinkedTable], levels: Levels | None = None) -> list[VisibleTable]:
    """The tables of a source: their values, or their labels at the levels of a release."""
    visible_tables = []
    for linked_table in tables:
        parent = None if linked_table.parent is None else linked_table.parent.position
        visible_tables.append(
            VisibleTable(linked_table.name, parent, linked_table.run.engine, _source_rows(linked_table, levels))
        )
    return visible_tables


def _source_rows(linked_table: LinkedTable, levels: Levels | None) -> exp.Select:
    query = linked_table.select_linked_rows()
    no_key: exp.Expr = cast(exp.null(), "INTEGER")
    row_key = col("row", "numbers") if linked_table.key else no_key
    parent_key = no_key.copy() if linked_table.parent is None else col("row", "parent")
    if linked_table.parent is not None and linked_table.key:
        query = query.join(
            linked_table.numbers.as_("numbers"), on=linked_table.same_key("child", "numbers"), copy=False
        )
    query = query.select(as_column(row_key, "row_key"), as_column(parent_key, "parent_key"), copy=False)
    if levels is not None:
        query = join_labels(query, linked_table, lambda attribute: (levels[attribute],))
    for i, column in enumerate(linked_table.columns.generalized):
        value: exp.Expr = col(column, "child")
        if levels is not None:
            value = label_at_level(linked_table, i, levels[linked_table.attribute_numbers[i]])
        query = query.select(as_column(value, f"value_{i}"), copy=False)
    return query
