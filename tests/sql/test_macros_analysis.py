"""The macros for analysts: what they read in a label is what `oracle_labels` reads."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

import duckdb
import pytest

from oracles.oracle_labels import may_be, members, must_be
from sqlanon.support.resources import read_sql_file
from support.lanes import examples

TEXT = read_sql_file("macros_analysis.sql")
PIECES = ["a", " ", ",", "{", "}", '"', "\\", "NULL", "\n", "[", "]", "'", ", ", '" "', "ä", "\t", '\\"', "\x1f", "*"]


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(TEXT)
        yield connection


def share_of(db: duckdb.DuckDBPyConnection, label: Any, low: Any, high: Any) -> tuple[bool, float | None]:
    query = "SELECT sqlanon.overlaps(?, ?, ?), sqlanon.share(?, ?, ?)"
    row = db.execute(query, [label, low, high] * 2).fetchone()
    assert row is not None
    return row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "low", "high", "share"),
    [
        ("20", 20, 20, 1), ("20", 21, None, 0), ("20-24", 22, 30, 0.6), ("20-24", None, None, 1), ("05-09", 9, 9, 0.2),
        ("-05--01", -3, 0, 0.6), ("-5 to 24", 0, 4, 1 / 6), ("[20, 25)", 22, 23, 0.2), ("[20, 25)", 25, 30, 0),
        ("[20, 25)", 20, 25, 1), ("[20, 25)", 20, 24, 0.8), ("[-2.5, 2.5)", 0, 9, 0.5), (".5-1.5", 1, 2, 0.5),
        ("<0", 0, 5, 0), ("<0", None, 0, 1), ("<0", -5, 5, None), ("≥100", 0, 99, 0), ("≥100", 100, None, 1),
        ("≥100", 50, 120, None), ("*", 0, 9, None), ("021**", 0, 9, None), ("{20, 30, 40}", 25, 45, 2 / 3),
        ("{20, x}", 25, 45, None), (None, 0, 9, 0), (None, None, None, 0), ("Higher", 0, 9, None), ("2e+3", 0, 9, None),
        (7, 0, 9, 1), (7.5, 8, 9, 0), (["20", "30"], 25, 45, 0.5), (["*"], 25, 45, None), ("1980-01", 0, 5000, None),
    ],
)  # fmt: skip
def test_the_share_of_a_label(db: Any, label: Any, low: Any, high: Any, share: float | None) -> None:
    answer = share_of(db, label, low, high)
    assert answer == (share is None or share > 0, share if share is None else pytest.approx(share))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "share"),
    [
        ("1980-01-20", 1), ("1980-02-20", 0), ("1980-01", 22 / 31), ("1980-02", 10 / 29), ("1980-Q1", 32 / 91),
        ("1980-Q2", 0), ("1980", 32 / 366), ("1980s", 32 / 3653), ("1980-W02", 4 / 7), ("1980-W03", 1), ("1980-W01", 0),
        ("[1980-01-01, 1980-01-11)", 0.1), ("1980-02-10 to 1980-02-11", 0.5), ("<1980-01-10", 0), ("<1980-02-01", None),
        ("≥1980-02-11", 0), ("1980-01-20 23:59:59", 1), ("1980-01-20 12:00:00 to 1980-03-01 00:00:00", 21.5 / 40.5),
        ("*", None), (None, 0), ("{1980-01-20, 1990-01-01}", 0.5), ("1980-01-20 or so", None),
    ],
)  # fmt: skip
def test_the_share_of_a_label_of_days(db: Any, label: str | None, share: float | None) -> None:
    for ends in ((date(1980, 1, 10), date(1980, 2, 10)), ("1980-01-10", "1980-02-10")):
        answer = share_of(db, label, *ends)
        assert answer == (share is None or share > 0, share if share is None else pytest.approx(share))


def some_label(rng: random.Random, dates: bool) -> str:
    def number() -> int:
        return rng.randint(-30, 120)

    def day() -> date:
        return date(1980, 1, 1) + timedelta(days=rng.randint(-400, 4000))

    low, high = sorted(day() if dates else number() for _ in range(2))
    year = rng.randint(1978, 1991)
    texts = [f"{low}", f"[{low}, {high})", f"<{low}", f"≥{low}", "*", f"{low} to {high}", "19**", "{a, b}"]
    if dates:
        texts += [f"{year}", f"{year // 10}0s", f"{year}-Q{rng.randint(1, 4)}", f"{year}-{rng.randint(1, 12):02}"]
        texts += [f"{year}-W{rng.randint(1, 52):02}"]
    else:
        texts += [f"{low:03}-{high:03}", f"{low}.5-{high}.75", f"{{{low}, {high}}}", f"{low}-{high}"]
    return rng.choice(texts)


@pytest.mark.slow
@pytest.mark.parametrize("dates", [False, True])
def test_labels_are_read_as_the_oracle_reads_them(db: Any, dates: bool) -> None:
    """FALSE and 1 are certain: they hold for every value that the label can stand for."""
    rng, cases = random.Random(f"labels {dates}"), []
    for _ in range(examples(600)):
        ends = sorted(
            date.fromordinal(722815 + rng.randint(-400, 4000)) if dates else rng.randint(-40, 130) for _ in "ab"
        )
        low, high = (None if rng.random() < 0.15 else end for end in ends)
        if dates and low is None and high is None:
            continue
        cases.append((some_label(rng, dates), low, high))
    kind = "DATE" if dates else "INTEGER"
    db.execute(f"CREATE OR REPLACE TABLE cases (i INTEGER, label VARCHAR, low {kind}, high {kind})")
    db.executemany("INSERT INTO cases VALUES (?, ?, ?, ?)", [(i, *case) for i, case in enumerate(cases)])
    query = "SELECT sqlanon.overlaps(label, low, high), sqlanon.share(label, low, high) FROM cases ORDER BY i"
    rows = db.execute(query).fetchall()
    for (label, low, high), (may, share) in zip(cases, rows, strict=True):
        ends = [end if end is None or dates else Fraction(end) for end in (low, high)]
        assert may == may_be(label, *ends), (label, low, high)
        assert (share == 1) == must_be(label, *ends), (label, low, high)
        assert (share == 0) == (not may), (label, low, high)
        assert share is None or 0 <= share <= 1


US = timedelta(microseconds=1)


def some_time(rng: random.Random) -> datetime:
    seconds = rng.choice([0, 86399, rng.randint(0, 86399), rng.randint(0, 86399)])
    micro = rng.choice([0, 0, 500_000, 999_999])
    return datetime(2020, 2, rng.randint(27, 29)) + timedelta(
        days=rng.randint(0, 3), seconds=seconds, microseconds=micro
    )


def label_of_times(rng: random.Random) -> tuple[str, datetime | None, datetime | None]:
    """A label, and the first and the last moment that it covers."""
    first, last = sorted(some_time(rng) for _ in range(2))
    day, next_day = datetime.combine(first, time()), datetime.combine(first, time()) + timedelta(days=1)
    return rng.choice([
        (f"{first}", first, first),
        (f"{first.isoformat()}", first, first),
        (f"{first}+00", first, first),
        (f"{first + timedelta(hours=5, minutes=30)}+05:30", first, first),
        (f"{first} to {last}", first, last),
        (f"{first}+00 to {last}+00", first, last),
        (f"[{first}, {last + US})", first, last),
        (f"<{last}", None, last - US),
        (f"≥{first}", first, None),
        (f"{day.date()}", day, next_day - US),
        (f"{day.date()} to {last}", day, last),
        (f"[{day.date()}, {next_day.date()})", day, next_day - US),
        ("2020-02", datetime(2020, 2, 1), datetime(2020, 3, 1) - US),
        ("*", None, None),
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_are_compared_to_the_microsecond(db: Any, zone: str) -> None:
    """In any time zone of the client; a date as an end is the whole day."""
    rng, cases = random.Random(f"times {zone}"), []
    for _ in range(examples(600)):
        label, first, last = label_of_times(rng)
        near = [limit for limit in (first, last) if limit is not None]
        low, high = sorted(
            rng.choice([some_time(rng), *near, *(moment + rng.choice([US, -US]) for moment in near)]) for _ in "ab"
        )
        ends: list[Any] = [low, high]
        if rng.random() < 0.2:
            low, high = datetime.combine(low, time()), datetime.combine(high, time.max)
            ends = [low.date(), high.date()]
        cases.append((label, first, last, low, high, *map(str, ends)))
    rows = "SELECT unnest(?) AS l, unnest(?) AS a, unnest(?) AS b"
    query = f"SELECT sqlanon.overlaps(l, a, b), sqlanon.share(l, a, b) FROM ({rows})"
    db.execute(f"SET TimeZone = '{zone}'")
    try:
        answers = db.execute(
            query, [[case[0] for case in cases], *([case[i] for case in cases] for i in (5, 6))]
        ).fetchall()
    finally:
        db.execute("RESET TimeZone")
    assert len(answers) == len(cases)
    for (label, first, last, low, high, *_), (may, share) in zip(cases, answers, strict=True):
        inside = first is not None and last is not None and low <= first and last <= high
        outside = (first is not None and first > high) or (last is not None and last < low)
        assert may == (not outside), (label, low, high)
        assert (share == 1) == inside, (label, low, high)
        assert (share == 0) == outside, (label, low, high)


def test_a_count_of_an_hour_excludes_the_other_hours_of_the_day(db: Any) -> None:
    db.execute("""
        CREATE OR REPLACE TABLE visits AS
        SELECT TIMESTAMP '2020-01-05 00:30:00' + to_hours(h::INTEGER) AS at FROM range(24) AS r(h), range(5)
    """)
    hour = "TIMESTAMP '2020-01-05 12:00:00', TIMESTAMP '2020-01-05 13:00:00'"
    assert db.execute(f"FROM sqlanon.estimated_count('visits', 'at', {hour})").fetchone() == (5, 5, 5, 120)
    db.execute('CREATE OR REPLACE TABLE visits AS SELECT "at"::DATE::VARCHAR AS "at" FROM visits')
    assert db.execute(f"FROM sqlanon.estimated_count('visits', 'at', {hour})").fetchone() == (
        0, pytest.approx(5), 120, 120,
    )  # fmt: skip


def as_set(values: list[str]) -> str:
    """A set, as mondrian writes it."""

    def quote_member(value: str) -> str:
        return '"' + value.replace('"', '""') + '"' if re.search(r'[,{}"]|^\s|\s$|^$', value) else value

    return "{" + ", ".join(map(quote_member, sorted(values))) + "}"


def test_members_returns_the_values_of_a_set(db: Any) -> None:
    rng = random.Random("members")
    for _ in range(examples(300)):
        values = sorted({"".join(rng.choices(PIECES, k=rng.randint(0, 4))) for _ in range(rng.randint(1, 4))})
        assert members(as_set(values)) == values
        assert db.execute("SELECT sqlanon.members(?)", [as_set(values)]).fetchone() == (values,)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["a", "*", "", None, "{", "{a", "{}", '{a"b}', "{a,b}", "{ a}", "20-24"])
def test_members_of_another_label_is_the_label(db: Any, label: str | None) -> None:
    assert db.execute("SELECT sqlanon.members(?)", [label]).fetchone() == ([label],)


def test_a_set_counts_by_its_members_and_an_unknown_label_between_nothing_and_all(db: Any) -> None:
    labels = ["a", "a", "{a, b}", "{a, b, c}", "b", "*", "group", None, '{"x, y", a}']
    db.execute("CREATE OR REPLACE TABLE towns AS SELECT unnest(?::VARCHAR[]) AS label", [labels])
    count = "FROM sqlanon.estimated_members('towns', 'LABEL', {})"
    share = 2 + 1 / 2 + 1 / 3 + 1 / 2
    assert db.execute(count.format("['a']")).fetchone() == (2, pytest.approx(share / 7 * 9), 7, 9)
    options = "['a', 'b'], others := ['group'], suppressed := 2"
    share = 2 + 1 + 2 / 3 + 1 + 1 / 2
    assert db.execute(count.format(options)).fetchone() == (4, pytest.approx(share / 8 * 11), 9, 11)
    assert db.execute(count.format("['x, y']")).fetchone() == (0, pytest.approx(0.5 / 7 * 9), 3, 9)
    assert db.execute(count.format("['no such']")).fetchone() == (0, 0, 2, 9)
    db.execute("CREATE OR REPLACE TABLE towns AS FROM (VALUES (['a']), (['a', 'b, c']), (['*']), (NULL)) AS t(label)")
    assert db.execute(count.format("['b, c']")).fetchone() == (0, pytest.approx(0.5 / 3 * 4), 2, 4)


@pytest.fixture(scope="module")
def released_view(db: Any) -> str:
    db.execute('CREATE SCHEMA "my schema"; CREATE TABLE "my schema".released ("sqlanon label" VARCHAR, x VARCHAR)')
    values = "('20-29', 'a'), ('30-39', 'a'), ('≥90', 'b'), ('*', 'b'), (NULL, 'b')"
    db.execute(f'INSERT INTO "my schema".released VALUES {values}')
    return '"my schema".released'


def test_counts_of_suppressed_rows_are_between_nothing_and_all(db: Any, released_view: str) -> None:
    query = "FROM sqlanon.estimated_count(?, 'SQLANON label', 25, 39{})"
    assert db.execute(query.format(""), [released_view]).fetchall() == [(1, pytest.approx(1.5 / 4 * 5), 3, 5)]
    rows = db.execute(query.format(", suppressed := 10"), [released_view]).fetchall()
    assert rows == [(1, pytest.approx(1.5 / 4 * 15), 13, 15)]


def test_bounds_of_averages_need_the_bounds_of_values(db: Any, released_view: str) -> None:
    query = "FROM sqlanon.estimated_average(?, 'sqlanon label'{})"
    assert db.execute(query.format(""), [released_view]).fetchall() == [(None, pytest.approx(29.5), None, 4)]
    rows = db.execute(query.format(", least := 0, most := 100"), [released_view]).fetchall()
    assert rows == [(140 / 4, pytest.approx((24.5 + 34.5 + 95 + 50) / 4), pytest.approx(268 / 4), 4)]
    rows = db.execute(query.format(", least := 0, most := 100, suppressed := 4"), [released_view]).fetchall()
    assert [(row[0], row[2]) for row in rows] == [(140 / 8, pytest.approx(668 / 8))]
    rows = db.execute(query.format(", most := 100, suppressed := 4"), [released_view]).fetchall()
    assert [(row[0], row[2]) for row in rows] == [(None, pytest.approx(668 / 8))]


@pytest.mark.thorough
def test_columns_of_any_name_are_read_in_groups_and_conditions(db: Any, released_view: str) -> None:
    """The macros' own names meet no column."""
    where = f'FROM {released_view} WHERE sqlanon.overlaps("sqlanon label", 25, 39)'
    shares = db.execute(f'SELECT x, sum(sqlanon.share("sqlanon label", 25, 39)) {where} GROUP BY x ORDER BY x')
    assert shares.fetchall() == [("a", 1.5), ("b", None)]
    for name in ("x", "l", "h", "a", "b", "start", "dated", "since", "till", "label", "low", "share", "step"):
        db.execute(f"CREATE OR REPLACE TEMP TABLE named AS SELECT '20-24' AS \"{name}\"")
        assert db.execute(f'SELECT sqlanon.share("{name}", 22, 30) FROM named').fetchall() == [(pytest.approx(0.6),)]
        assert db.execute(f'SELECT "{name}" FROM named WHERE sqlanon.overlaps("{name}", 25, 30)').fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["integer_division = true", "default_null_order = 'NULLS_LAST'"])
def test_settings_of_the_client_change_no_figure(db: Any, released_view: str, setting: str) -> None:
    queries = [
        f"FROM sqlanon.estimated_count('{released_view}', 'sqlanon label', 25, 39)",
        f"FROM sqlanon.estimated_average('{released_view}', 'sqlanon label', least := 0, most := 99)",
        f"FROM sqlanon.suppressed_values('{released_view}', ['x', 'sqlanon label'])",
    ]
    before = [sorted(db.execute(query).fetchall()) for query in queries]
    assert before[2] == [("sqlanon label", 1, 5, 0.2), ("x", 0, 5, 0.0)]
    db.execute(f"SET {setting}")
    try:
        assert [sorted(db.execute(query).fetchall()) for query in queries] == before
    finally:
        db.execute(f"RESET {setting.split(maxsplit=1)[0]}")


@pytest.mark.parametrize(
    "call",
    [
        "estimated_count('{}', 'nope', 1, 2)",
        "estimated_average('{}', 'nope')",
        "suppressed_values('{}', ['x', 'nope'])",
    ],
)
def test_an_unknown_column_is_an_error(db: Any, released_view: str, call: str) -> None:
    with pytest.raises(duckdb.BinderException, match="nope"):
        db.execute(f"FROM sqlanon.{call.format(released_view)}")


@pytest.mark.parametrize("ends", [(1, "x"), (1, date(2020, 1, 1)), (date(2020, 1, 1), 1)])
def test_ends_of_two_kinds_are_an_error(db: Any, ends: tuple[Any, Any]) -> None:
    with pytest.raises(duckdb.ConversionException):
        share_of(db, "20", *ends)


def test_the_macros_that_read_labels_share_their_words() -> None:
    steps = {re.sub(r"\s+", " ", match) for match in re.findall(r"SELECT\s+x,.*?\"sqlanon label\"", TEXT, re.DOTALL)}
    shares = {
        re.sub(r"\s+", " ", macro)
        for macro in re.findall(r"SELECT CASE WHEN count\(share\).*?AS share\s", TEXT, re.DOTALL)
    }
    assert len(steps) == len(shares) == 1
    assert TEXT.count('"sqlanon label"') == 3
