"""Samples of the people of a source, and of their values, as hashes with a secret.

For each column that can number people, a sample has the people with the least hashes: two samples with one secret have
the same people, if both sources have them. For each person and each other column it has the least hash of the person's
values. Hashes are made on the server that has the rows, from a text form that does not depend on types: 7, 7.0, '007'
and ' 7 ' are one person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from sqlglot import exp

from sqlanon.engines.dialects.canonical_text import TEXT_TYPES, canonical_text, hash_text, rewrite_text
from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.errors import UnreadableColumnsError
from sqlanon.ledger.source_samples import parse_hash
from sqlanon.policy import Policy
from sqlanon.sources.persons import MIN_PERSONS
from sqlanon.sources.relation import source_errors
from sqlanon.sources.run import Run
from sqlanon.sources.source import AllColumns
from sqlanon.support.expressions import (
    aliased,
    as_column,
    cast,
    col,
    create_table,
    drop_table,
    number,
    select,
    template,
    text,
)

SAMPLED_PEOPLE = 4000
"""Maximum number of people of a sample: enough to contain some of a hundred common people of a million."""

SAMPLED_ROWS = 200_000
"""Maximum number of rows of the people of a sample: people with many rows make it smaller."""

MAX_KEYS = 6
"""Maximum number of columns that can number people."""

MAX_COLUMNS = 15
"""Maximum number of other columns whose values are in a sample: those that the policy declares first."""

CONSTANT = 0.9
"""The least share of the people with several rows that have one value of a quasi-identifier, if a column numbers
people."""

_LAST_DIGIT = "[0-9]([^0-9]*)$"
_HAS_DIGIT = "^.*[0-9].*$"

_SAMPLE = """
    WITH spellings AS (
        SELECT spelling, :person AS person, row_count
        FROM (SELECT :key AS spelling, count(*) AS row_count FROM :relation GROUP BY :key) AS counted
        WHERE NOT spelling IS NULL
    ),
    people AS (
        SELECT person, :hash AS hash, sum(row_count) AS row_count
        FROM spellings
        WHERE person <> ''
        GROUP BY person
    ),
    neighbours AS (
        SELECT count(*) AS people, sum(row_count) AS row_count, max(row_count) AS most_rows, max(has_digit) AS has_digit
        FROM (
            SELECT row_count, :bucket AS bucket, CASE WHEN :is_numbered THEN 1 ELSE 0 END AS has_digit FROM people
        ) AS p
        GROUP BY bucket
    ),
    figures AS (
        SELECT
            CAST(sum(people) AS BIGINT) AS people,
            CAST(sum(row_count) AS BIGINT) AS source_rows,
            CAST(max(most_rows) AS BIGINT) AS most_rows,
            CAST(sum(CASE WHEN has_digit = 1 THEN people ELSE 0 END) AS BIGINT) AS numbered,
            CAST(sum(CASE WHEN has_digit = 1 AND people > 1 THEN people ELSE 0 END) AS BIGINT) AS running
        FROM neighbours
    ),
    sampled AS (
        SELECT person, hash, row_count
        FROM (
            SELECT person, hash, row_count, sum(row_count) OVER (ORDER BY hash) AS rows_so_far
            FROM (SELECT * FROM people ORDER BY hash LIMIT :most) AS least
        ) AS l
        WHERE rows_so_far <= :most_rows
    )
    SELECT
        s.hash AS hash,
        CAST(max(s.row_count) AS BIGINT) AS row_count,
        max(f.people) AS people,
        max(f.source_rows) AS source_rows,
        max(f.most_rows) AS most_rows,
        max(f.numbered) AS numbered,
        max(f.running) AS running,
        :values
    FROM :relation
    JOIN spellings AS v ON :same_spelling
    JOIN sampled AS s ON v.person = s.person
    CROSS JOIN figures AS f
    GROUP BY s.hash
"""
_SAMPLES = {dialect: template(_SAMPLE, dialect) for dialect in TEXT_TYPES}

_FETCHED_SAMPLE = template("""
    SELECT
        ('0x' || hash)::UBIGINT AS person, row_count, people, source_rows, most_rows, numbered, running,
        :least AS hashes, :constant AS constant
    FROM :fetched
""")


def person_hash(value: exp.Expr, type_: str, secret: str) -> exp.Expr:
    """The hash of a person in a DuckDB relation, as in samples."""
    return parse_hash(digits=hash_text(canonical_text(value, type_, "duckdb"), text(_hash_key(secret)), "duckdb"))


def _hash_key(secret: str) -> str:
    """The key of the hashes on a server: its logs may have the key, but never the secret."""
    return sha256(f"{secret}:source people".encode()).hexdigest()


def _has_text_form(type_: str) -> bool:
    return not (is_nested(type_) or type_.startswith(("BLOB", "BIT", "GEOMETRY", "VARIANT", "UNKNOWN")))


@dataclass(frozen=True)
class PeopleSample:
    """A sample of the people that a column numbers, in a table of the run: ``person``, ``row_count``, ``hashes`` and
    ``constant``, both one for each of the other columns.
    """

    table: exp.Table
    column: str
    columns: tuple[str, ...]
    is_person: bool  # whether the policy names the column as that of persons
    is_personal: bool  # whether the column seems to number people, and nothing else
    people: int
    most_rows: int
    running: (
        float | None
    )  # the share of numbers with a neighbour within ten, which may be equal by chance; None for names

    def rows_for(self, run_id: str) -> exp.Select:
        """The rows of the table ``source_people``."""
        return template("""
            SELECT
                :run_id AS run_id, :column_name AS column_name, :is_person AS is_person, :is_personal AS is_personal,
                :people AS people, :most_rows AS most_rows, :running AS running, :names AS column_names, person, hashes
            FROM :sample
        """)(
            run_id=run_id,
            column_name=self.column,
            is_person=exp.convert(self.is_person),
            is_personal=exp.convert(self.is_personal),
            people=self.people,
            most_rows=self.most_rows,
            running=exp.null() if self.running is None else number(self.running),
            names=exp.array(*(text(name) for name in self.columns)),
            sample=self.table.copy(),
        )


@dataclass
class SourcePeople:
    """The people of the source of a run, by each column that can number them.

    ``why`` is the reason why they could not be sampled, if a server refused to read them.
    """

    run: Run
    policy: Policy
    why: str | None = None
    _samples: dict[str, list[PeopleSample]] = field(default_factory=dict)

    def samples(self, secret: str) -> Sequence[PeopleSample]:
        """A sample for each column that can number people, hashed with a secret; none if rows cannot be hashed."""
        if secret not in self._samples:
            self._samples[secret] = self._take_samples(secret)
        return self._samples[secret]

    def drop(self) -> None:
        """Drop the tables of all samples."""
        for samples in self._samples.values():
            for sample in samples:
                self.run.engine.execute(drop_table(sample.table.copy()))
        self._samples.clear()

    def _take_samples(self, secret: str) -> list[PeopleSample]:
        all_columns = self.run.source.all_columns(self.run.engine)
        if all_columns is None or all_columns.engine.dialect not in _SAMPLES:
            return []
        types = {name: type_ for name, type_ in all_columns.types.items() if _has_text_form(type_)}
        declared = {name.lower(): i for i, name in enumerate(self.policy.attributes)}
        described = sorted(types, key=lambda name: declared.get(name.lower(), len(declared)))
        other_columns = {key: [name for name in described if name != key][:MAX_COLUMNS] for key in self._keys(types)}
        if not other_columns:
            return []
        if not all_columns.again:
            try:
                return self._sample_each(all_columns, other_columns, secret)
            except UnreadableColumnsError as error:
                if self.run.source.access == "rows":
                    raise
                self.why = str(error)  # the user may lack the privilege to read some columns
                return []
        copy = self.run.work("every column") if self.run.copies is None else self.run.copies.table("every_column")
        wanted = dict.fromkeys([*other_columns, *(name for names in other_columns.values() for name in names)])
        with source_errors():
            query = select(list(map(col, wanted)), all_columns.relation.copy())
            self.run.engine.execute(create_table(copy.copy(), query))
        try:
            return self._sample_each(replace(all_columns, relation=copy), other_columns, secret)
        finally:
            self.run.engine.execute(drop_table(copy))

    def _sample_each(
        self, all_columns: AllColumns, other_columns: Mapping[str, Sequence[str]], secret: str
    ) -> list[PeopleSample]:
        samples = []
        for i, (key, names) in enumerate(other_columns.items()):
            target = self.run.work(f"people_sample_{len(self._samples)}_{i}")
            self.run.engine.execute(drop_table(target.copy(), exists=True))  # a result can be published twice
            self._fetch(all_columns, key, names, secret, target)
            figures = template("""
                SELECT max(people), max(source_rows), max(most_rows), max(numbered), max(running)
                FROM :sample
            """)
            people, rows, most_rows, numbered, running = self.run.engine.rows(figures(sample=target))[0]
            if (people or 0) < MIN_PERSONS:
                self.run.engine.execute(drop_table(target))
                continue
            person, keys = self.policy.source.person, {name.lower() for name in self.policy.source.key}
            is_person = isinstance(person, str) and person.lower() == key.lower()
            is_personal = is_person or key.lower() in keys or 2 * people >= rows or self._describes(target, names)
            share = running / numbered if 2 * numbered >= people else None
            samples.append(PeopleSample(target, key, tuple(names), is_person, is_personal, people, most_rows, share))
        return samples

    def _keys(self, names: Iterable[str]) -> list[str]:
        """The columns that can number people: that of persons, those of keys, and identifying ones; undeclared columns
        as well, if the policy names no persons."""
        policy, by_lower = self.policy, {name.lower(): name for name in names}
        person = policy.source.person
        candidates = [
            *([person] if isinstance(person, str) else []),
            *policy.source.key,
            *policy.attributes_with_role("identifying"),
        ]
        if not isinstance(person, str):
            declared = {name.lower() for name in policy.attributes}
            candidates += [name for name in by_lower if name not in declared]
        keys = [by_lower[name.lower()] for name in candidates if name.lower() in by_lower]
        return list(dict.fromkeys(keys))[:MAX_KEYS]

    def _fetch(
        self, all_columns: AllColumns, key: str, other_columns: Sequence[str], secret: str, target: exp.Table
    ) -> None:
        """Make the table of a sample."""
        query = _sample_query(all_columns, key, other_columns, _hash_key(secret))
        positions = range(len(other_columns))
        least = exp.array(*(parse_hash(digits=col(f"least_{i}")) for i in positions))
        constant = exp.array(*(col(f"least_{i}").eq(col(f"greatest_{i}")) for i in positions))
        engine, server = self.run.engine, all_columns.engine
        if server is engine:
            with source_errors():
                engine.execute(
                    create_table(target.copy(), _FETCHED_SAMPLE(fetched=query, least=least, constant=constant))
                )
            return
        if not server.OPENS_READ_ONLY:
            raise UnreadableColumnsError("people are not sampled in this kind of source")
        parameters = [[_hash_key(secret)]] if server.BINDS_STREAM_PARAMETERS else []
        with source_errors(), server.read_only(), server.stream(query, *parameters) as reader:
            engine.copy_arrow(
                target.copy(), reader, lambda arrow: _FETCHED_SAMPLE(fetched=arrow, least=least, constant=constant)
            )

    def _describes(self, sample: exp.Table, other_columns: Sequence[str]) -> bool:
        """Whether most quasi-identifiers have one value for each person with several rows, unlike those of doctors."""
        quasi = {name.lower() for name in self.policy.quasi_identifiers}
        positions = [i for i, name in enumerate(other_columns) if name.lower() in quasi]
        share_of_constant = template("""
            SELECT avg(CASE WHEN list_extract(constant, :position) THEN 1 ELSE 0 END)
            FROM :sample
            WHERE row_count > 1 AND NOT list_extract(hashes, :position) IS NULL
        """)
        shares = [self.run.engine.rows(share_of_constant(position=i + 1, sample=sample))[0][0] for i in positions]
        constant = [share for share in shares if share is not None and share >= CONSTANT]
        return bool(positions) and 2 * len(constant) >= len(positions)


def _sample_query(all_columns: AllColumns, key: str, other_columns: Sequence[str], secret: str) -> exp.Select:
    """The statement that takes a sample. The key of the hashes is its first parameter, if the engine binds any."""
    dialect, binds = all_columns.engine.dialect, all_columns.engine.BINDS_STREAM_PARAMETERS
    hash_key = cast(exp.Parameter(this=exp.Literal.number(1)), TEXT_TYPES[dialect]) if binds else text(secret)
    types, source = all_columns.types, aliased(all_columns.relation, "source")
    values: list[exp.Expr] = []
    for i, name in enumerate(other_columns):
        hashed = hash_text(canonical_text(col(name, "source"), types[name], dialect), hash_key, dialect)
        values.append(as_column(exp.Min(this=hashed), f"least_{i}"))
        values.append(as_column(exp.Max(this=hashed.copy()), f"greatest_{i}"))
    person = col("person")
    return _SAMPLES[dialect](
        person=canonical_text(col("spelling"), types[key], dialect),
        key=col(key, "source"),
        relation=source,
        hash=hash_text(person, hash_key, dialect),
        bucket=rewrite_text(person.copy(), _LAST_DIGIT, [1], dialect),
        is_numbered=exp.NEQ(this=rewrite_text(person.copy(), _HAS_DIGIT, [], dialect), expression=person.copy()),
        most=SAMPLED_PEOPLE,
        most_rows=SAMPLED_ROWS,
        values=values,
        same_spelling=col(key, "source").eq(col("spelling", "v")),
    )
