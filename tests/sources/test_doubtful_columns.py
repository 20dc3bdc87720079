"""A few words among numbers, and dates that can be read in two ways, are decided by the data holder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from bound_rows import bound_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import HierarchyError, SourceError
from sqlanon.sources.files.doubtful_columns import (
    MOSTLY,
    DoubtfulColumn,
    build_column_checks,
    find_doubtful_columns,
    find_doubtful_dates,
    refuse_future_births,
)
from sqlanon.support.expressions import table
from sqlanon.support.toml import toml_value
from support.commands import cli
from support.databases import insert, shared_database
from support.lanes import examples
from support.policies import make_policy

AGES = [str(20 + i % 60) for i in range(100)]


def bind(path: Path, name: str, values: Sequence[str], attribute: dict[str, Any], **csv: Any) -> dict[str, str]:
    path.write_text("\n".join([f"other;{name}", *(f"x{i};{value}" for i, value in enumerate(values)), ""]))
    attributes = {
        name: {"role": "quasi", "hierarchy": "suppress", **attribute},
        "other": {"role": "quasi", "hierarchy": {"mask": "right"}},
    }
    section = {"person": False, "csv": {"delimiter": ";", **csv}}
    return bound_rows(str(path), attributes, source=section)[1]


def refusal(path: Path, name: str, values: Sequence[str], attribute: dict[str, Any], **csv: Any) -> str:
    with pytest.raises(SourceError) as caught:
        bind(path, name, values, attribute, **csv)
    return str(caught.value)


@pytest.mark.slow
def test_a_few_words_among_numbers_are_refused_with_their_lines(tmp_path: Path) -> None:
    values = [*AGES, "4e", *AGES, "NA", "NA"]
    message = refusal(tmp_path / "x.csv", "age", values, {})
    assert "attributes.age: the column has 200 numbers and 3 other values: " in message
    assert "'4e' (line 102), 'NA' (line 203), 'NA' (line 204)" in message
    assert (
        'missing = ["4e", "NA"] in attributes.age makes them NULL; type = "text" keeps all values as texts' in message
    )
    assert bind(tmp_path / "x.csv", "age", values, {"missing": ["4e", "NA"]})["age"] == "BIGINT"
    assert bind(tmp_path / "x.csv", "age", values, {}, missing=["4e", "NA"])["age"] == "BIGINT"
    assert bind(tmp_path / "x.csv", "age", values, {"type": "text"})["age"] == "VARCHAR"


@pytest.mark.thorough
def test_a_line_of_totals_is_refused_with_the_footer(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.csv", "age", [*AGES, "Total"], {})
    assert "footer = 1 under [source.csv] leaves the last row out" in message
    assert "footer" not in refusal(tmp_path / "x.csv", "age", ["Total", *AGES], {})


def doubts_of(values: Sequence[str], share: float, name: str = "wage") -> list[DoubtfulColumn]:
    """The doubts about a column of texts from this share of numbers or dates on."""
    with shared_database() as connection:
        connection.execute(f"CREATE TABLE t ({name} TEXT)")
        insert(connection, "t", [(value,) for value in values])
        return find_doubtful_columns(DuckDBEngine(connection), table("t"), {name.lower(): share})


@pytest.mark.parametrize(("words", "codes"), [(10, 'missing = ["x0", "x1"'), (11, "missing = [...]")])
def test_at_most_ten_codes_are_listed(words: int, codes: str) -> None:
    (column,) = doubts_of([*["7"] * 400, *(f"x{i}" for i in range(words))], MOSTLY)
    assert codes in column.describe()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("day", "is_read"),
    [("2020-01-31", True), ("2020-01-31 14:30:00", True), ("2020-01-31 02:30 PM", False), ("31.01.2020", False)],
)
def test_dates_that_are_read_without_a_key_need_none_beside_words(day: str, is_read: bool) -> None:
    (column,) = doubts_of([*[day] * 99, "unknown"], MOSTLY)
    assert ("reads the others as dates" not in column.describe()) is is_read


@pytest.mark.parametrize(("name", "is_doubtful"), [("Age", True), ("zip", False), ("patient_id", False)])
def test_codes_by_their_name_are_not_in_doubt(name: str, is_doubtful: bool) -> None:
    assert bool(doubts_of([*["12139"] * 99, "12139-1234"], MOSTLY, name)) is is_doubtful


@pytest.mark.slow
@pytest.mark.parametrize(("words", "is_doubtful"), [(5, True), (6, False)])
@pytest.mark.parametrize("written", ["7", "1,234", "31.12.2020"])
def test_other_values_are_in_doubt_from_95_of_100_on(written: str, words: int, is_doubtful: bool) -> None:
    doubts = doubts_of([*["x"] * words, *[written] * (100 - words)], MOSTLY)
    assert [(column.fitting, column.count) for column in doubts] == ([(95, 5)] if is_doubtful else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "marks"),
    [
        (["1 234", "12 345", "5"], [(".", " ")]),  # no comma: it is not said that commas are points
        (["1 234,5", "12 345"], [(",", " ")]),
        (["1,234", "5"], [(".", ","), (",", None)]),
        (["1,23", "5"], [(",", None)]),
        (["1'234.5"], [(".", "'")]),
    ],
)
def test_marks_that_occur_are_offered(values: list[str], marks: list[tuple[str, str | None]]) -> None:
    (column,) = doubts_of(values, MOSTLY)
    assert {(offered.decimal, offered.thousands) for offered in column.marks} == {*marks}


@pytest.mark.parametrize(
    ("attribute", "share"),
    [
        ({"role": "quasi", "hierarchy": "suppress"}, 0.95),
        ({"role": "quasi", "hierarchy": {"intervals": [10]}}, 0.5),
        ({"role": "quasi", "hierarchy": {"dates": ["year"]}}, 0.5),
        ({"role": "quasi", "noise": {"epsilon": 1.0}}, 0.5),
        ({"role": "quasi", "hierarchy": {"mask": "right"}}, None),
        ({"role": "quasi", "hierarchy": "suppress", "type": "text"}, None),
        ({"role": "insensitive"}, None),
    ],
)
def test_rules_that_need_numbers_raise_doubts_earlier(attribute: dict[str, Any], share: float | None) -> None:
    policy = make_policy({"Wage": attribute, "zip": "mask"})
    assert build_column_checks(policy).texts == ({} if share is None else {"wage": share})


@pytest.mark.parametrize(("distance", "texts"), [("ordered", {"score": 0.95}), ("equal", {})])
def test_values_that_a_requirement_orders_raise_doubts(distance: str, texts: dict[str, float]) -> None:
    privacy = {"t_closeness": [{"attribute": "Score", "distance": distance, "t": 0.5}]}
    assert build_column_checks(make_policy({"Score": "sensitive", "zip": "mask"}, privacy=privacy)).texts == texts


@pytest.mark.thorough
def test_the_first_of_many_words_are_named(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.csv", "age", [*(AGES * 10), *(f"x{i}" for i in range(20))], {})
    assert "'x4' (line 1,006), and 15 more; decide" in message and "missing = [...]" in message


@pytest.mark.thorough
def test_numeric_rule_names_values_that_are_not_numbers(tmp_path: Path) -> None:
    values = [*AGES, *["unknown"] * 60]
    message = refusal(tmp_path / "x.csv", "age", values, {"hierarchy": {"intervals": [10]}})
    assert "100 numbers and 60 other values" in message
    assert bind(tmp_path / "x.csv", "age", values, {}) == {"other": "VARCHAR", "age": "VARCHAR"}, "many words: a text"


def test_numbers_with_commas_name_the_decimal_mark(tmp_path: Path) -> None:
    values = [*(f"{i},5" for i in range(99)), "-"]
    assert 'under [source.csv], decimal = "," reads the others' in refusal(tmp_path / "x.csv", "wage", values, {})
    assert bind(tmp_path / "x.csv", "wage", values, {"missing": ["-"]}, decimal=",")["wage"] == "DECIMAL(3,1)"


@pytest.mark.thorough
def test_numbers_with_commas_alone_are_decided_by_keys(tmp_path: Path) -> None:
    path, values = tmp_path / "x.csv", ["12", "1,234", "45,678"]
    message = refusal(path, "wage", values, {})
    assert "3 numbers, 2 of them with marks: '1,234' (line 3), '45,678' (line 4); decide" in message
    assert 'under [source.csv], thousands = "," or decimal = ",";' in message
    assert bind(path, "wage", values, {}, decimal=",")["wage"] == "DECIMAL(5,3)"
    assert bind(path, "wage", values, {}, thousands=",")["wage"] == "BIGINT"
    assert bind(path, "wage", values, {"type": "text"})["wage"] == "VARCHAR"
    assert bind(path, "wage", ["1,2,3", "1,2"], {})["wage"] == "VARCHAR", "lists of codes"


PARTIAL_DATES = ["1981", "1980-05", "1980-05-31", "1979"] * 20
MONTHS = {"hierarchy": {"dates": ["month", "year"]}}


@pytest.mark.cases(1)
@pytest.mark.parametrize("attribute", [MONTHS, {"hierarchy": {"mask": "right"}}, {}])
def test_partial_dates_are_texts_that_dates_take(attribute: dict[str, Any], tmp_path: Path) -> None:
    assert bind(tmp_path / "x.csv", "seen", PARTIAL_DATES, attribute)["seen"] == "VARCHAR"


@pytest.mark.thorough
def test_malformed_partial_dates_are_refused(tmp_path: Path) -> None:
    for attribute in (MONTHS, {}):
        message = refusal(tmp_path / "x.csv", "seen", [*PARTIAL_DATES, "1980-13", "unknown"], attribute)
        assert "80 dates and 2 other values: '1980-13' (line 82), 'unknown' (line 83); decide" in message
        keys = {**attribute, "missing": ["1980-13", "unknown"]}
        assert bind(tmp_path / "x.csv", "seen", [*PARTIAL_DATES, "1980-13", "unknown"], keys)["seen"] == "VARCHAR"


@pytest.mark.thorough
def test_partial_dates_of_birth_after_today_are_refused(tmp_path: Path) -> None:
    path, today = tmp_path / "x.csv", date.today()
    for text in (str(today.year + 1), f"{today.year + 1}-01"):
        message = refusal(path, "birth_date", [*PARTIAL_DATES, text], MONTHS)
        assert "1 date of birth after today, the first in row 81" in message
    bind(path, "birth_date", [*PARTIAL_DATES, str(today.year), today.isoformat()[:7], today.isoformat()], MONTHS)


def test_partial_dates_of_birth_may_be_in_this_year_and_month() -> None:
    today = date.today()
    next_year = date(today.year + 1, today.month, 1)
    with shared_database() as connection:
        for day, is_refused in ((today, False), (next_year, True)):
            for value in (str(day.year), day.isoformat()[:7], day.isoformat()):
                connection.execute("CREATE OR REPLACE TABLE t AS SELECT unnest(['1979', $1]) AS Birth", [value])
                with (
                    pytest.raises(SourceError, match=r"1 date of birth after today, the first in row 2")
                    if is_refused
                    else nullcontext()
                ):
                    refuse_future_births(DuckDBEngine(connection), table("t"), {"birth"})


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("values", "keys", "type_"),
    [
        (["1.234.567", "12.345", "5.000", "7"], {"decimal": ",", "thousands": "."}, "BIGINT"),
        (["12.345,60", "12.345", "7,5"], {"decimal": ",", "thousands": "."}, "DECIMAL(7,2)"),
        (["12,345.60", "12,345", "7.5"], {"thousands": ","}, "DECIMAL(7,2)"),
        (["12,345,678", "1,234"], {"thousands": ","}, "BIGINT"),
        (["1 234", "12 345", "5"], {"thousands": " "}, "BIGINT"),
        (["1\u00a0234", "12\u00a0345", "5"], {"thousands": "\u00a0"}, "BIGINT"),
        (["1 234,5", "12 345", "5"], {"decimal": ",", "thousands": " "}, "DECIMAL(6,1)"),
        (["1'234.5", "12'345", "5"], {"thousands": "'"}, "DECIMAL(6,1)"),
    ],
)
def test_numbers_with_marks_name_the_keys_that_read_all_of_them(
    values: list[str], keys: dict[str, str], type_: str, tmp_path: Path
) -> None:
    message = refusal(tmp_path / "x.csv", "wage", values, {})
    text = " with ".join(f"{key} = {toml_value(mark)}" for key, mark in keys.items())
    assert f"decide how they are written: under [source.csv], {text}; type" in message
    assert bind(tmp_path / "x.csv", "wage", values, {}, **keys)["wage"] == type_


@pytest.mark.slow
def test_numbers_with_marks_beside_words_need_both_keys(tmp_path: Path) -> None:
    path, values = tmp_path / "x.csv", ["1.234.567", "12.345"] * 30 + ["NA"]
    message = refusal(path, "wage", values, {})
    assert "60 numbers and 1 other value: 'NA' (line 62)" in message
    assert 'under [source.csv], decimal = "," with thousands = "." reads the others as numbers' in message
    keys = {"decimal": ",", "thousands": "."}
    assert "'NA' (line 62)" in refusal(path, "wage", values, {}, **keys)
    assert 'decimal = "," with thousands = "."; type' in refusal(path, "wage", values, {"missing": ["NA"]})
    assert bind(path, "wage", values, {"missing": ["NA"]}, **keys)["wage"] == "BIGINT"


YEARS = {"hierarchy": {"dates": ["year"]}}


@pytest.mark.thorough
@pytest.mark.parametrize("broken", ["2024-02-30", "0000-00-00"])
def test_impossible_day_is_not_a_date(broken: str, tmp_path: Path) -> None:
    values = [*(f"2024-01-{i}" for i in range(13, 25)), broken]
    message = refusal(tmp_path / "x.csv", "seen", values, YEARS)
    assert f"12 dates and 1 other value: '{broken}' (line 14)" in message
    assert f'missing = ["{broken}"] in attributes.seen makes them NULL' in message
    assert bind(tmp_path / "x.csv", "seen", values, {**YEARS, "missing": [broken]})["seen"] == "DATE"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "type_", "format_"),
    [
        ([f"{i}JAN1999" for i in range(10, 22)], "date", "%d%b%Y"),
        ([f"{i} March 1999" for i in range(10, 22)], "date", "%d %B %Y"),
        ([f"{i}.12.1999 14:30" for i in range(13, 25)], "timestamp", "%d.%m.%Y %H:%M"),
        ([f"12/{i}/1999 02:30 PM" for i in range(13, 25)], "timestamp", "%m/%d/%Y %I:%M %p"),
    ],
)
def test_dates_that_the_engine_leaves_texts_name_their_format(
    values: list[str], type_: str, format_: str, tmp_path: Path
) -> None:
    message = refusal(tmp_path / "x.csv", "seen", values, YEARS)
    assert f"12 dates, read as texts: '{values[0]}' (line 2)" in message
    assert f'type = "{type_}", format = "{format_}"; or keep them' in message
    keys = {"type": type_, "format": format_}
    assert bind(tmp_path / "x.csv", "seen", values, {**YEARS, **keys})["seen"] == type_.upper()


@pytest.mark.slow
def test_dates_beside_codes_of_missing_values_name_their_format(tmp_path: Path) -> None:
    path, values = tmp_path / "x.csv", [*(f"{i}.01.1999" for i in range(13, 25)), "NA"]
    assert 'type = "date", format = "%d.%m.%Y" reads the others as dates' in refusal(path, "seen", values, YEARS)
    message = refusal(path, "seen", values, {**YEARS, "missing": ["NA"]})
    assert "12 dates, read as texts: '13.01.1999' (line 2)" in message and 'format = "%d.%m.%Y"; or keep' in message
    keys = {"missing": ["NA"], "type": "date", "format": "%d.%m.%Y"}
    assert bind(path, "seen", values, {**YEARS, **keys})["seen"] == "DATE"
    assert "1 value of the column is not a date in the format %d.%m.%Y: 'NA' (line 14)" in refusal(
        path, "seen", values, {**YEARS, "type": "date", "format": "%d.%m.%Y"}
    )


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "needs"), [({"dates": ["year"]}, "dates"), ({"intervals": [5]}, "numbers or dates")])
def test_a_rule_on_texts_names_the_first_of_them(rule: dict[str, Any], needs: str, tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.csv", "seen", ["2024-01-13", "2024-01-14", *["soon", "x"] * 4], {"hierarchy": rule})
    assert f"attributes.seen: the hierarchy needs {needs}, and the column has texts, such as 'soon' (line 4)" in message


@pytest.mark.slow
def test_dates_of_birth_are_past(tmp_path: Path) -> None:
    path, values = tmp_path / "x.csv", ["1.2.20", "1.2.99", "31.12.59"]
    keys = {"type": "date", "format": "%d.%m.%y"}
    message = refusal(path, "date_of_birth", values, {**keys, "pivot": 2060})
    assert "attributes.date_of_birth: 1 date of birth after today, the first in row 3" in message
    assert bind(path, "date_of_birth", values, {**keys, "pivot": 2026})["date_of_birth"] == "DATE"
    assert bind(path, "planned", values, {**keys, "pivot": 2060})["planned"] == "DATE"
    assert "1 date of birth after today, the first in row 2" in refusal(path, "dob", ["2020-01-31", "2956-01-31"], {})


TWO_DATES = "admitted,birth,sex\n" + "".join(f"2020-01-{i + 10},{i % 12 + 1}/{i + 1}/19{i + 50},m\n" for i in range(20))


@pytest.mark.thorough
def test_dates_in_a_second_format_are_still_dates(tmp_path: Path) -> None:
    """The engine knows one format of dates in a file."""
    (tmp_path / "x.csv").write_text(TWO_DATES)
    dates = {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}}
    attributes = {"admitted": dates, "birth": {"role": "quasi", "hierarchy": "suppress"}, "sex": "insensitive"}
    with pytest.raises(SourceError) as caught:
        bound_rows(str(tmp_path / "x.csv"), attributes, source={"person": False})
    assert "attributes.birth: the column has 20 dates, read as texts: '1/1/1950' (line 2), '2/2/1951' (line 3)" in str(
        caught.value
    )
    assert 'type = "date", format = "%m/%d/%Y"; or keep them as texts: type = "text"' in str(caught.value)
    with sqlanon.connect(str(tmp_path / "x.csv")) as db:
        assert db.inspect().undecided == (str(caught.value),)
        assert 'birth = { role = "quasi", type = "date", format = "%m/%d/%Y", ' in db.suggest()
    attributes["birth"] = {**dates, "type": "date", "format": "%m/%d/%Y"}
    rows, types = bound_rows(str(tmp_path / "x.csv"), attributes, source={"person": False})
    assert types["birth"] == "DATE" and rows[1][1] == date(1951, 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("date_format", "keys"),
    [
        ("{0}.{1}.19{2}", 'format = "%d.%m.%Y" or format = "%m.%d.%Y"; or keep'),
        ("{0}/{1}/{2}", 'format = "%d/%m/%y" or format = "%m/%d/%y", pivot = '),
        ("{0}.{1}.19{2} 10:00", 'type = "timestamp", format = "%d.%m.%Y %H:%M" or format = "%m.%d.%Y %H:%M"; or'),
        ("{0}.{1}.19{2} at 10", "format = ...; or keep"),
    ],
)
def test_all_formats_of_dates_in_a_second_format_are_named(date_format: str, keys: str, tmp_path: Path) -> None:
    dates = [(f"2020-01-{i + 10}", date_format.format(i % 12 + 1, i % 11 + 1, i + 50)) for i in range(15)]
    (tmp_path / "x.csv").write_text("admitted;birth\n" + "".join(f"{a};{b}\n" for a, b in dates))
    attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in ("admitted", "birth")}
    with pytest.raises(SourceError) as caught:
        bound_rows(str(tmp_path / "x.csv"), attributes, source={"person": False})
    assert "attributes.birth: the column has 15 dates, read as texts: " in str(caught.value)
    assert keys in str(caught.value)


@pytest.mark.slow
def test_points_that_may_separate_thousands_are_decided_by_keys(tmp_path: Path) -> None:
    path, values = tmp_path / "x.csv", ["12.345", "950", "-1.200", "", "0"]
    assert "column 'wage' has numbers with three digits after each point: under" in refusal(path, "wage", values, {})
    assert bind(path, "wage", values, {}, decimal=",", thousands=".")["wage"] == "BIGINT"
    assert bind(path, "wage", values, {}, decimal=".")["wage"] == "DECIMAL(6,3)"
    for keys in ({"type": "number"}, {"missing": ["NA"]}, {"type": "number", "missing": ["NA"]}):
        assert "three digits after each point" in refusal(path, "wage", [*values, *keys.get("missing", [])], keys)
        assert bind(path, "wage", values, keys, decimal=".")["wage"] == "DECIMAL(6,3)"
    assert bind(path, "wage", [*values, "1.25"], {"type": "number"})["wage"] == "DECIMAL(6,3)"
    for value in ("0.345", "1.5", "1234.567", "12.340000"):
        assert bind(path, "wage", [*values, value], {})["wage"] == "DOUBLE", value


@pytest.mark.slow
@pytest.mark.least(3)
@pytest.mark.parametrize(
    ("many", "few"), [("2020-01-31", "unknown"), ("31.12.2020", "31/12/2020"), ("2020-01-01 10:00:00", "2020")]
)
def test_a_few_texts_among_dates_are_refused(many: str, few: str, tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.csv", "seen", [many] * 99 + [few], {})
    assert f"99 dates and 1 other value: '{few}' (line 101)" in message


CODES = {
    "all texts": ("town", ["a", "b"] * 50, {}),
    "codes with zeros": ("shop", ["02139", "10115"] * 50, {}),
    "longer postal codes": ("zip", [*["12139", "10115"] * 50, "12139-1234"], {}),
    "under a mask": ("age", [*AGES, "4e"], {"hierarchy": {"mask": "right"}}),
    "listed": ("age", [*["1", "2"] * 50, "x"], {"hierarchy": {"categories": {"a": ["1", "2"], "b": ["x"]}}}),
    "many words": ("age", [*AGES, *["x"] * 10], {}),
    "no quasi-identifier": ("age", [*AGES, "4e"], {"role": "sensitive", "hierarchy": None}),
    "numbers and words": ("score", [f"{i} of 10" for i in range(10)], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CODES)
def test_texts_by_nature_are_read(case: str, tmp_path: Path) -> None:
    name, values, attribute = CODES[case]
    assert bind(tmp_path / "x.csv", name, values, attribute)[name] == "VARCHAR"


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(["7", "-1", "2.5", "x", "", "1e"]), min_size=1, max_size=30))
def test_columns_are_refused_from_a_share_of_numbers_on(
    tmp_path_factory: pytest.TempPathFactory, few: list[str]
) -> None:
    path = tmp_path_factory.mktemp("share") / "x.csv"
    values = [*AGES, *few]
    numbers = sum(value in ("7", "-1", "2.5") for value in few) + len(AGES)
    odd_values = [(i, value) for i, value in enumerate(values, 2) if value in ("x", "1e")]
    if odd_values and 100 * numbers >= 95 * (numbers + len(odd_values)):
        message = refusal(path, "age", values, {})
        assert all(f"'{value}' (line {line})" in message for line, value in odd_values[:5])
    else:
        assert (bind(path, "age", values, {})["age"] == "VARCHAR") == bool(odd_values)


@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP", "VARCHAR"])
def test_nobody_is_born_tomorrow(type_: str) -> None:
    today = date.today()
    with shared_database() as connection:
        for day, is_refused in ((today, False), (today + timedelta(days=1), True)):
            connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT unnest([NULL, '{day}'])::{type_} AS Birth")
            with pytest.raises(SourceError, match="in row 2") if is_refused else nullcontext():
                refuse_future_births(DuckDBEngine(connection), table("t"), {"birth"})


@pytest.mark.parametrize(
    ("days", "is_doubtful"),
    [
        (["2020-12-11", "2020-01-02"], True),
        (["2020-12-12", "2020-01-02"], True),
        (["2020-12-13", "2020-01-02"], False),  # one of them has a day above 12
        (["2020-12-12", "2020-01-01", None], False),  # both ways are alike
        ([None], False),
    ],
)
def test_days_up_to_12_may_be_months(days: list[str | None], is_doubtful: bool) -> None:
    with shared_database() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest($1)::DATE AS seen", [days])
        formats = {"seen": "%d/%m/%Y"}
        doubtful = find_doubtful_dates(DuckDBEngine(connection), table("t"), formats)
        assert doubtful == (formats if is_doubtful else {})
        assert find_doubtful_dates(DuckDBEngine(connection), table("t"), {"seen": "%Y-%m-%d"}) == {}


DAYS = [f"{1 + i % 12:02d}/{1 + (i // 12) % 12:02d}/2020" for i in range(100)]


@pytest.mark.slow
def test_days_and_months_that_can_be_swapped_are_refused(tmp_path: Path) -> None:
    for attribute in ({}, {"role": "insensitive", "hierarchy": None}):
        message = refusal(tmp_path / "x.csv", "seen", DAYS, attribute)
        assert (
            "attributes.seen: the column has dates with days and months that could be swapped in every value" in message
        )
        assert 'format = "%d/%m/%Y"' in message and 'format = "%m/%d/%Y"' in message
    typed = {"type": "date", "format": "%d/%m/%Y"}
    assert bind(tmp_path / "x.csv", "seen", DAYS, typed)["seen"] == "DATE"
    assert bind(tmp_path / "x.csv", "seen", [*DAYS, "13/01/2020"], {})["seen"] == "DATE", "it says which is the day"
    assert bind(tmp_path / "x.csv", "seen", ["02/02/2020", "05/05/2021"], {})["seen"] == "DATE", "both ways are alike"
    assert bind(tmp_path / "x.csv", "seen", ["2020-01-02"] * 9, {})["seen"] == "DATE"


def test_years_of_two_digits_are_refused(tmp_path: Path) -> None:
    values = [f"{13 + i % 10}.{1 + i % 12:02d}.{i % 90:02d}" for i in range(100)]
    message = refusal(tmp_path / "x.csv", "born", values, {})
    assert "attributes.born: the column has dates with years of two digits" in message
    assert 'type = "date", format = "%d.%m.%y"' in message and "pivot = 2026" in message
    typed = {"type": "date", "format": "%d.%m.%y", "pivot": 2026}
    assert bind(tmp_path / "x.csv", "born", values, typed)["born"] == "DATE"
    rows, _ = bound_rows(
        str(tmp_path / "x.csv"), {"born": {"role": "quasi", "hierarchy": "suppress", **typed}},
        source={"person": False, "undeclared": "drop"},
    )  # fmt: skip
    assert (date(1927, 4, 20) in {row[-1] for row in rows}) and max(row[-1] for row in rows).year <= 2026


@pytest.mark.slow
def test_anonymize_and_risk_refuse_alike(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("\n".join(["age,ill", *(f"{age},x" for age in AGES), "4e,y", ""]))
    (tmp_path / "policy.toml").write_text(
        '[source]\nfiles = "x.csv"\nperson = false\n[attributes]\nage = { role = "quasi", hierarchy = "suppress" }\n'
        'ill = { role = "sensitive" }\n[privacy]\nk = 2\n[release]\ndatabase = "r.duckdb"\n'
    )
    for verb in ("anonymize", "risk", "compare"):
        ended = cli(verb, "policy.toml", cwd=tmp_path)
        assert ended.status == 2 and "'4e' (line 102)" in ended.err
    assert not (tmp_path / "r.duckdb").exists()


@pytest.mark.thorough
def test_star_in_the_source_is_not_a_suppressed_value(tmp_path: Path) -> None:
    towns = ["Rome", "*", "Oslo"] * 4
    (tmp_path / "x.csv").write_text("\n".join(["town,ill", *(f"{town},x" for town in towns), ""]))
    attributes: dict[str, Any] = {"town": {"role": "quasi", "hierarchy": "suppress"}, "ill": "sensitive"}
    with sqlanon.connect(str(tmp_path / "x.csv")) as db:
        policy = make_policy(attributes, table=None, source={"person": False})
        with pytest.raises(HierarchyError, match=r"has the value '\*' \(4 rows\), which is the label of the top"):
            db.anonymize(policy)
        attributes["town"]["missing"] = ["*"]
        release = db.anonymize(make_policy(attributes, table=None, source={"person": False}))
        rows = release.publish(tmp_path / "release.duckdb", "released")
        assert rows.verify().verified
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        counts = connection.execute("SELECT town, count(*) FROM released GROUP BY town").fetchall()
    assert dict(counts) == {"Rome": 4, "Oslo": 4, None: 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "keys", "is_refused"),
    [
        (";unknown;*", {}, True),
        (";;*", {}, False),  # as NULL is released: without a label below the top
        (";unknown;*", {"csv": {"missing": []}}, False),
    ],
)
def test_labels_of_the_empty_text_are_not_silently_unused(
    tmp_path: Path, line: str, keys: dict[str, Any], is_refused: bool
) -> None:
    (tmp_path / "x.csv").write_text("town,ill\n" + "Rome,x\nOslo,x\n,x\n" * 3)
    (tmp_path / "towns.csv").write_text(f"Rome;south;*\nOslo;north;*\n{line}\n")
    town = {"role": "quasi", "hierarchy": {"file": str(tmp_path / "towns.csv")}, "min_level": 1}
    policy = make_policy({"town": town, "ill": "sensitive"}, table=None, source={"person": False, **keys})
    with sqlanon.connect(str(tmp_path / "x.csv")) as db:
        if is_refused:
            with pytest.raises(HierarchyError, match=r"labels for the empty text.*it has NULL \(3 rows\)"):
                db.anonymize(policy)
        else:
            labels = {row[0] for row in db.anonymize(policy).relation().fetchall()}
            assert labels == ({"south", "north", "unknown"} if keys else {"south", "north", None})
