"""Decisions of the ledger at their borders: single statements on small tables, and checks of made-up figures."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import NotComparedError, PolicyError, ReleaseError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger import earlier, recording, same_people
from sqlanon.ledger import publication as publishing
from sqlanon.ledger.earlier import (
    _max_level_problems,
    _min_levels,
    _refuse_changed_release,
    _search_policy,
    find_base_publications,
)
from sqlanon.ledger.growth import extend, source_change
from sqlanon.ledger.growth.extend import _CLASS_FIGURES, _PERSONS, _UNRELEASED, _UNRELEASED_COUNTS
from sqlanon.ledger.growth.marks import select_released_rows
from sqlanon.ledger.growth.source_change import (
    _COUNT_GONE_PEOPLE,
    _COUNT_REMAINING_CLASSES,
    can_mark_rows,
    count_changes,
)
from sqlanon.ledger.growth.source_change import _PERSONS as PERSONS_OF_CLASS
from sqlanon.ledger.joint import audit as joint_audit
from sqlanon.ledger.joint.audit import JointAudit, _parts_with_new_rows
from sqlanon.ledger.published_release import _COUNT_WITHDRAWN
from sqlanon.ledger.records import (
    History,
    Publication,
    SpentEpsilon,
    find_named_publications,
    find_other_catalogs,
    read_history,
)
from sqlanon.ledger.released_hierarchies import have_same_labels
from sqlanon.publish.draft import ReplacedRelease
from sqlanon.support.expressions import all_of, as_column, col, null_safe_equal, select_star, table
from sqlanon.support.names import EARLIER_RELEASES_COLUMN
from support.policies import make_policy


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def create_table(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: list[tuple[Any, ...]]) -> Any:
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
    if rows:
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return table(name)


def rows_of(connection: duckdb.DuckDBPyConnection, query: Any) -> list[tuple[Any, ...]]:
    return connection.execute(query.sql("duckdb")).fetchall()


# --- marks


def test_rows_of_other_releases_alone_are_candidates(connection: duckdb.DuckDBPyConnection) -> None:
    """The extended release has the first bit, and the releases that it is based on have others."""
    marks = [0, 1, 2, 3, 4, 5, 6, 7]
    rows = create_table(connection, "marked", f'"{EARLIER_RELEASES_COLUMN}" BIGINT', [(mark,) for mark in marks])
    assert rows_of(connection, _UNRELEASED(rows=rows, mark=col(EARLIER_RELEASES_COLUMN))) == [(0,), (2,), (4,), (6,)]
    assert rows_of(connection, select_released_rows(rows)) == [(1,), (3,), (5,), (7,)]
    coded = create_table(connection, "coded", "value BIGINT, code_0 INT", [(mark, 10 + mark) for mark in marks])
    released_counts = create_table(connection, "counted", "mark INT, n INT", [(10 + mark, mark) for mark in marks])
    query = _UNRELEASED_COUNTS(relation=released_counts, code=col("mark"), marks=coded)
    assert rows_of(connection, query) == [(10, 0), (12, 2), (14, 4), (16, 6)]


# --- a release that is based on others


@pytest.mark.parametrize(
    ("k", "earlier", "parts", "shield"),
    [
        (5, [5], 5, None),
        (5, [3], 3, 5),
        (5, [8], 5, None),
        (5, [3, 5], 5, None),  # parts of 3 rows would be too few for the second release
        (5, [3, 4], 4, 5),
        (5, [2, 9], 5, None),
        (5, [5, 5, 3], 5, None),
    ],
)
def test_parts_of_classes_have_the_k_that_they_are_checked_for(
    k: int, earlier: list[int], parts: int, shield: int | None
) -> None:
    """The smaller k of the new and an earlier release; of several earlier ones the greatest of these."""
    search_policy = _search_policy(make_policy({"zip": "mask", "age": {"intervals": [5]}}, k=k), {}, earlier, False)
    assert search_policy.privacy.k == parts == max(min(k, earlier_k) for earlier_k in earlier)
    shields = [(shield.quasi, shield.k) for shield in search_policy.privacy.k_anonymity]
    assert shields == ([] if shield is None else [(("zip", "age"), shield)])
    mark = search_policy.attributes[EARLIER_RELEASES_COLUMN]
    assert (mark.role, mark.max_level) == ("quasi", 0)  # never generalized, so that parts stay apart


def test_labels_are_no_finer_than_in_earlier_releases() -> None:
    policy = make_policy(
        {
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 2, "max_level": 3},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
            "name": "identifying",
        }
    )
    levels = {floor: _search_policy(policy, {"zip": floor}, [2], False).attributes for floor in (1, 2, 3)}
    assert [levels[floor]["zip"].min_level for floor in (1, 2, 3)] == [2, 2, 3]
    assert (levels[1]["zip"].max_level, levels[1]["age"].min_level, levels[1]["age"].max_level) == (3, 0, None)
    assert "name" not in levels[1]
    fixed = _search_policy(policy, {"zip": 1, "age": 2}, [2], True).attributes
    assert [(fixed[name].min_level, fixed[name].max_level) for name in ("zip", "age")] == [(1, 1), (2, 2)]
    assert [len(_max_level_problems(policy, {"zip": floor, "age": 2})) for floor in (2, 3, 4)] == [0, 0, 1]
    search_input: Any = SimpleNamespace(policy=policy, marginals=SimpleNamespace(heights=(5, 3)))
    for roles, expected in (
        ({"zip": True, "age": True}, {"zip": 2, "age": 2}),
        ({"zip": True}, {"zip": 2, "age": 3}),  # a column that it lacks is released at its top
        ({"zip": True, "age": False}, {"zip": 2}),  # it shows all values of a column that is not a quasi-identifier
    ):
        release: Any = SimpleNamespace(columns=roles, is_quasi=roles.get, level=lambda *_: 2)
        assert _min_levels(search_input, release) == expected


def test_the_highest_level_of_all_earlier_releases_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {"a": {"zip": 2, "age": 0}, "b": {"zip": 1, "age": 1}, "c": {"age": 0}}
    arguments = list[Any]()

    def open_release(_: Any, publication: Publication, *__: Any) -> Any:
        return nullcontext(SimpleNamespace(publication=publication, promised_k=3))

    for name, answer in (
        ("open_earlier_release", open_release),
        ("_needed_columns", lambda _: []),
        ("create_temporary_view", lambda *_: None),
        ("add_empty_marks", lambda *_: None),
        ("_find_obstacles", lambda *_: []),
        ("_min_levels", lambda _, release: levels[release.publication.run_id]),
        ("_Marking", lambda *_: SimpleNamespace(find_people=lambda: None, mark_rows=lambda should_count: (None, True))),
        ("_search_policy", lambda *given: arguments.extend(given)),
    ):
        monkeypatch.setattr(earlier, name, answer)
    policy = make_policy({"zip": "mask", "age": {"intervals": [5, 10]}})
    engine = SimpleNamespace(execute=lambda _: None, columns=lambda _: {})
    source = SimpleNamespace(relation=None, files=())
    run: Any = SimpleNamespace(engine=engine, source=source, work_names=SimpleNamespace(view=table))
    search_input: Any = SimpleNamespace(policy=policy, columns=None)
    _, releases = earlier.mark_released_rows(run, search_input, [publication(run_id) for run_id in "abc"])
    assert arguments == [policy, {"zip": 2, "age": 1}, [3, 3, 3], False]
    assert releases.run_ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("release", "attribute", "all_levels", "words"),
    [
        ({}, {}, True, None),
        ({"shows_masked_rows": True}, {}, False, "has masked rows"),
        ({"levels": {"zip": None}}, {}, False, "shows zip at several levels"),
        ({"decoys": 3}, {}, False, "has decoys"),
        ({"decoys": 3}, {}, True, "has decoys"),
        ({}, {"role": "sensitive"}, False, "is sensitive and so released unchanged"),
        ({}, {"role": "identifying"}, False, None),
        ({"quasi": ()}, {"role": "sensitive"}, False, None),
        ({"has_same_labels": False}, {}, True, "gives other labels than in"),
        ({"has_same_labels": False}, {}, False, None),  # the labels of released values are compared alone
    ],
)
def test_a_release_is_based_on_real_rows_whose_labels_it_can_give_again(
    release: dict[str, Any],
    attribute: dict[str, Any],
    all_levels: bool,
    words: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quasi, levels = release.get("quasi", ("zip",)), release.get("levels", {"zip": 1})
    base: Any = SimpleNamespace(
        path=Path("old.duckdb"),
        columns=["zip", "age"],
        is_quasi=lambda column: column in quasi,
        level=lambda column, _: levels[column],
        shows_masked_rows=release.get("shows_masked_rows", False),
        manifest=SimpleNamespace(decoys=release.get("decoys")),
        publication=publication("r"),
    )
    hierarchy = SimpleNamespace(attribute="Zip")
    monkeypatch.setattr(earlier, "copy_released_hierarchies", lambda *_: {"zip": hierarchy})
    monkeypatch.setattr(earlier, "have_same_labels", lambda *_: release.get("has_same_labels", True))
    attributes: dict[str, Any] = {"Zip": {"role": "quasi", "hierarchy": {"mask": "right"}}, "age": "suppress"}
    if attribute:
        attributes["Zip"] = attribute
    search_input: Any = SimpleNamespace(policy=make_policy(attributes), hierarchies=[hierarchy])
    problems = earlier._find_obstacles(SimpleNamespace(engine=None), search_input, base, all_levels)  # type: ignore[arg-type]
    assert len(problems) == (words is not None)
    assert words is None or words in problems[0].message


def test_an_earlier_release_is_the_one_that_was_recorded() -> None:
    publication: Any = SimpleNamespace(path=Path("r.duckdb"), manifest_hash="h", digest="d")

    def verification(fingerprint: str = "h", digest: str = "d", failures: Sequence[str] = ()) -> Any:
        manifest = SimpleNamespace(fingerprint=lambda: fingerprint)
        return SimpleNamespace(manifest=manifest, digest=digest, failures=failures)

    _refuse_changed_release(publication, verification())
    with pytest.raises(ReleaseError, match="its manifest was changed"):
        _refuse_changed_release(publication, verification(fingerprint="i"))
    with pytest.raises(ReleaseError, match="its rows were changed"):
        _refuse_changed_release(publication, verification(digest="e"))
    with pytest.raises(ReleaseError, match="was changed since it was published: macros"):
        _refuse_changed_release(publication, verification(failures=["macros"]))


# --- growing tables


def test_figures_of_an_extended_release_count_its_classes(connection: duckdb.DuckDBPyConnection) -> None:
    values = [("a",), ("a",), ("a",), (None,), (None,), ("b",)]
    sizes = Counter(values).values()
    rows = create_table(connection, "extended", "zip VARCHAR", values)
    query = _CLASS_FIGURES(rows=rows, quasi=[col("zip")])
    assert rows_of(connection, query) == [(6, 3, min(sizes), sum(size * size for size in sizes))]
    assert rows_of(
        connection, _CLASS_FIGURES(rows=create_table(connection, "none", "zip VARCHAR", []), quasi=[col("zip")])
    ) == [(0, 0, 0, 0)]


def test_the_persons_of_an_extended_release(connection: duckdb.DuckDBPyConnection) -> None:
    """Two classes: one of three candidates is added, and the persons of the other two wait."""
    source = [(1, "a", 10), (2, "a", 11), (2, "a", 12), (3, "b", 13), (3, "b", 14), (4, "b", 15), (None, "b", 16)]
    candidates, added = [row for row in source if row[2] >= 14], [row for row in source if row[2] == 14]
    released = [row for row in source if row[2] < 15]
    for name, rows in {"src": source, "cand": candidates, "add": added, "rel": released}.items():
        create_table(connection, name, "who INT, zip VARCHAR, id INT", rows)
    query = _PERSONS(
        person=col("who"),
        candidate_person=col("who", "c"),
        source=table("src"),
        candidates=table("cand"),
        added=table("add"),
        same_key=col("id", "c").eq(col("id", "a")),
        quasi=[col("zip")],
        released=table("rel"),
    )
    waiting = {row[0] for row in candidates} - {row[0] for row in added}
    fewest = min(len({who for who, place, _ in released if place == zip_}) for zip_ in "ab")
    assert rows_of(connection, query) == [
        (len({row[0] for row in source}), len(waiting), len({row[0] for row in released}), fewest)
    ]
    assert (len(waiting), fewest) == (2, 1)


@pytest.mark.parametrize(("left", "smallest", "small"), [(4, 4, 0), (3, 3, 1), (0, 0, 1)])
def test_classes_of_which_too_few_rows_are_left(
    left: int, smallest: int, small: int, connection: duckdb.DuckDBPyConnection
) -> None:
    """Also a class without remaining rows, and the class of NULL; classes that are not in the release do not count."""
    released = create_table(connection, "released", "zip VARCHAR", [("a",)] * 4 + [(None,)] * 6)
    recoded = create_table(connection, "recoded", "zip VARCHAR", [("a",)] * left + [(None,)] * 6 + [("c",)])
    query = _COUNT_REMAINING_CLASSES(
        keys=[as_column(col("zip"), "k0")],
        columns=[col("zip")],
        size=exp.Count(this=exp.Star()),
        recoded=recoded,
        released=released,
        least=4,
        same=null_safe_equal(col("k0", "c"), col("k0", "s")),
    )
    assert rows_of(connection, query) == [(smallest, small)]


@pytest.mark.parametrize(
    ("people", "count"), [([1, 1, 2], 2), ([1, None], 2), ([None, None], 1), ([], 0), ([1, 2, 3, None], 4)]
)
def test_all_rows_without_a_person_are_one_person(
    people: list[int | None], count: int, connection: duckdb.DuckDBPyConnection
) -> None:
    create_table(connection, "people", "who INT", [(who,) for who in people])
    size = PERSONS_OF_CLASS(person=col("who")).sql("duckdb")
    assert connection.execute(f"SELECT {size} FROM people").fetchall() == [(count,)]


@pytest.mark.parametrize(
    ("before", "people_before", "now", "people_now", "compared", "gone"),
    [
        ([1, 2, 3], 3, [1, 3], 2, 3, 1),  # both samples are of all people
        ([1, 2, 3], 3, [], 0, 3, 3),
        ([1, 2, 3], 9, [1, 3, 9], 3, 3, 1),  # people before are known up to 3
        ([1, 2, 8], 3, [1, 2, 5], 9, 2, 0),  # people now are known up to 5, so that 8 is not compared
        ([1, 2, 5], 3, [1, 2, 5], 9, 3, 0),
        ([1, 2, 8], 9, [3, 4, 5], 9, 2, 2),
    ],
)
def test_people_are_compared_as_far_as_both_samples_reach(
    before: list[int],
    people_before: int,
    now: list[int],
    people_now: int,
    compared: int,
    gone: int,
    connection: duckdb.DuckDBPyConnection,
) -> None:
    create_table(connection, "sample_before", "person INT, people INT", [(person, people_before) for person in before])
    create_table(connection, "sample_now", "person INT", [(person,) for person in now])
    query = _COUNT_GONE_PEOPLE(before=table("sample_before"), now=table("sample_now"), people_now=people_now)
    assert rows_of(connection, query) == [(compared, gone, people_before)]


def test_rows_that_a_new_version_lacks_are_counted_by_class(connection: duckdb.DuckDBPyConnection) -> None:
    published = [("a",)] * 5 + [("b",)] * 3 + [(None,)] * 4 + [("c",)] * 2
    drafted = [("a",)] * 3 + [(None,)] * 4 + [("c",)] * 3 + [("d",)]
    create_table(connection, "published_rows", "zip VARCHAR", published)
    create_table(connection, "drafted_rows", "zip VARCHAR", drafted)
    query = _COUNT_WITHDRAWN(
        keys=[as_column(col("zip"), "k0")],
        columns=[col("zip")],
        released=table("published_rows"),
        rows=select_star(table("drafted_rows")),
        same=all_of([null_safe_equal(col("k0", "p"), col("k0", "d"))]),
    )
    lost = {key: n - Counter(drafted)[key] for key, n in Counter(published).items()}
    few = [n for n in lost.values() if n > 0]
    assert rows_of(connection, query) == [(len(few), sum(few), min(few))] == [(2, 5, 2)]


@pytest.mark.parametrize(
    ("rows_now", "suppressed", "deleted", "present", "new"),
    [
        (10, 2, 0, 8, 0),  # nothing has changed
        (11, 2, 0, 8, 1),
        (10, 2, 1, 7, 1),
        (10, 0, 0, 10, 0),
        (9, 2, 0, 8, 0),  # a suppressed row has left, and the ledger has no key of it
    ],
)
def test_suppressed_rows_are_not_new(
    rows_now: int, suppressed: int, deleted: int, present: int, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_change._PublishedRelease, "count_deleted_rows", lambda _: (deleted, present))
    policy = make_policy({"zip": "mask"}, source={"table": "t", "person": False}, catalog={"database": "c.duckdb"})
    run: Any = None
    manifest: Any = SimpleNamespace(rows=10, suppressed_rows=suppressed)
    change = count_changes(run, policy, publication("r"), manifest, rows_now)
    assert (change.deleted_rows, change.withdrawn_persons, change.new_rows) == (deleted, deleted, new)


@pytest.mark.parametrize(
    ("access", "level", "decoys", "suppressed", "can_be"),
    [
        ("rows", 1, None, "drop", True),
        ("rows", 1, 0, "drop", True),
        ("rows", 1, 3, "drop", False),
        ("rows", None, None, "drop", False),
        ("counts", 1, None, "drop", False),
        ("rows", 1, None, "mask", False),
    ],
)
def test_rows_are_marked_by_releases_of_real_rows_at_one_level(
    access: str, level: int | None, decoys: int | None, suppressed: str, can_be: bool
) -> None:
    policy = make_policy({"zip": "mask"}, release={"suppressed": suppressed})
    source: Any = SimpleNamespace(access=access)
    manifest: Any = SimpleNamespace(generalization={"zip": level}, decoys=decoys)
    assert can_mark_rows(policy, source, manifest) is can_be


@pytest.mark.parametrize(
    ("k", "guaranteed", "added", "smallest", "passed"),
    [(2, 3, 5, 3, [True]), (2, 3, 5, 2, [False]), (3, 3, 5, 2, []), (2, 3, 0, 0, [])],
)
def test_new_rows_have_the_size_that_shields_guarantee(
    k: int, guaranteed: int, added: int, smallest: int, passed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shields decide where k-anonymity has not counted the rows."""
    audit = SimpleNamespace(checks=lambda _: [], checks_of_classes=lambda _: [])
    monkeypatch.setattr(extend, "SourceAudit", lambda *_: audit)
    monkeypatch.setattr(extend, "guaranteed_k", lambda *_: guaranteed)
    policy = SimpleNamespace(k=k, privacy=None, quasi_identifiers=())
    engine = SimpleNamespace(dialect="duckdb", rows=lambda _: [(smallest,)])
    draft: Any = SimpleNamespace(
        run=SimpleNamespace(engine=engine, work=None, install_macros=lambda: "memory"),
        recoding=None,
        search_input=SimpleNamespace(policy=policy, columns=SimpleNamespace(person=None)),
        extension=SimpleNamespace(added_rows=added),
        _added_rows=table("added"),
        quasi_identifiers=["zip"],
    )
    checks = extend.ExtensionDraft.checks(draft, table("released"))
    assert [(check.name, check.passed) for check in checks] == [("new rows", is_passed) for is_passed in passed]


def test_columns_are_found_in_the_spelling_of_the_source() -> None:
    source: Any = SimpleNamespace(columns={"Id": "BIGINT", "ward": "VARCHAR"})
    assert [source_change._find_spelling(source, name) for name in ("ID", "WARD", "age")] == ["Id", "ward", "age"]


# --- the joint audit


def audit_of(**parts: Any) -> JointAudit:
    """A joint audit without a run: its policy, history and earlier releases are made up."""
    earlier = SimpleNamespace(run_ids=(), run_ids_by_person=(), changed_run_ids=())
    history: Any = SimpleNamespace(
        spent=(),
        shares={},
        people={},
        most_rows=1,
        most_rows_before={},
        earlier=(),
        replaced=None,
        notes=(),
        other_catalogs=(),
    )
    prepared: Any = SimpleNamespace(policy=make_policy({"zip": "mask"}, k=4), earlier=earlier)
    for name, value in parts.pop("history", {}).items():
        setattr(history, name, value)
    for name, value in parts.pop("earlier", {}).items():
        setattr(earlier, name, value)
    if "policy" in parts:
        prepared.policy = parts.pop("policy")
    run: Any = SimpleNamespace(identity="here", engine=None)
    return JointAudit(run, prepared, Path("new.duckdb"), history, **parts)


class Counts:
    """A `PairAudit` with made-up counts of new and gone rows by part."""

    def __init__(self, came: dict[str, int], gone: dict[str, int], several_levels: bool) -> None:
        self._came, self._gone = came, gone
        self.link: Any = SimpleNamespace(
            multilevel_attributes=several_levels, shared=(), attributes=(), in_reverse=None
        )

    @property
    def in_reverse(self) -> Counts:
        return Counts(self._gone, self._came, self.link.multilevel_attributes)

    def count_new_rows(self, part: str) -> tuple[int, int]:
        return (1, self._came[part]) if part in self._came else (0, 0)

    def list_unmatched(self) -> list[Any]:
        return []


PUBLIC: Any = SimpleNamespace(in_reverse=None)


@pytest.mark.parametrize("side", ["new", "gone"])
@pytest.mark.parametrize("part", ["new", "class", "region", "table"])
@pytest.mark.parametrize("several_levels", [False, True])
def test_few_new_rows_are_looked_for_on_both_sides_and_in_all_parts(side: str, part: str, several_levels: bool) -> None:
    """A release that is based on the other one has no gone rows; classes and regions differ from the table only where
    labels have several levels."""
    is_seen = several_levels or part in ("new", "table")
    counts = Counts(*(({part: 2}, {}) if side == "new" else ({}, {part: 2})), several_levels)
    pair: Any = SimpleNamespace(run_id="r", k=4, reason="")
    findings = audit_of()._temporal_attacks(pair, counts, PUBLIC, "none")
    assert [f"2 rows are {side}, fewer than 4" in finding.message for finding in findings] == [True] * is_seen
    based = audit_of(earlier={"run_ids": ("r",)})._temporal_attacks(pair, counts, PUBLIC, "none")
    assert len(based) == (is_seen and side == "new")
    by_person = audit_of(earlier={"run_ids_by_person": ("r",)})._temporal_attacks(pair, counts, PUBLIC, "none")
    assert by_person == []


def test_masked_rows_are_a_class_of_their_own_or_left_out() -> None:
    several: Any = SimpleNamespace(multilevel_attributes=True)
    one_level: Any = SimpleNamespace(multilevel_attributes=False)
    assert _parts_with_new_rows(several, "none") == ["new", "class", "region", "table"]
    assert _parts_with_new_rows(several, "own class") == ["class", "table"]
    assert _parts_with_new_rows(several, "left out") == ["new", "region"]
    assert _parts_with_new_rows(one_level, "none") == ["new", "table"]
    assert _parts_with_new_rows(one_level, "own class") == ["table"]


@pytest.mark.parametrize(("policy_k", "promised", "fewest"), [(4, 4, 4), (4, 3, 3), (3, 4, 3), (1, 4, 1)])
def test_the_smaller_k_of_two_releases_is_required(policy_k: int, promised: int, fewest: int) -> None:
    simple_namespace: Any = SimpleNamespace(publication=SimpleNamespace(run_id="r", source="here"), promised_k=promised)
    audit = audit_of(policy=make_policy({"zip": "mask"}, k=policy_k))
    assert audit._required_rows(simple_namespace) == (fewest, "")


@pytest.mark.parametrize(
    ("history", "rows"),
    [
        ({"most_rows": 3}, 10),  # three persons have at most nine rows: ten are of four
        ({"most_rows_before": {"r": 3}}, 10),
        ({"most_rows_before": {"other": 3}}, 4),
        ({"people": {"there": SimpleNamespace(most_rows=3, earlier_most_rows=2)}}, 10),
        ({"people": {"there": SimpleNamespace(most_rows=2, earlier_most_rows=3)}}, 10),
        ({"people": {"elsewhere": SimpleNamespace(most_rows=3, earlier_most_rows=3)}}, 4),
    ],
)
def test_required_rows_cover_k_persons(history: dict[str, Any], rows: int) -> None:
    simple_namespace: Any = SimpleNamespace(publication=SimpleNamespace(run_id="r", source="there"), promised_k=4)
    assert audit_of(history=history)._required_rows(simple_namespace)[0] == rows
    assert (
        audit_of(history=history, earlier={"run_ids": ("r",)})._required_rows(simple_namespace)[0] == 4
    )  # counted by the search


def spent(*epsilons: float, runs: str = "abcdef") -> dict[str, Any]:
    return {
        "spent": [
            SpentEpsilon(run, Path("r"), "s", None, epsilon) for run, epsilon in zip(runs, epsilons, strict=False)
        ]
    }


@pytest.mark.parametrize(
    ("before", "epsilon", "total", "passed"),
    [
        ((), 1.0, None, True),
        ((), None, None, True),
        ((0.5,), None, None, True),
        ((0.5,), 1.0, None, False),  # noise is drawn again, and the policy sets no total
        ((0.5,), 1.0, 1.5, True),
        ((0.5,), 1.0, 1.49, False),
        ((0.1, 0.1), 0.1, 0.3, True),  # although 0.1 + 0.1 + 0.1 > 0.3
        ((), 1.0, 0.99, False),
    ],
)
def test_the_noise_of_all_releases_adds_up(
    before: tuple[float, ...], epsilon: float | None, total: float | None, passed: bool
) -> None:
    noise = {"role": "quasi", "noise": {"epsilon": 0.1, "bounds": [0, 9]}}
    policy = make_policy({"zip": "mask", "cost": noise}, privacy={} if total is None else {"epsilon_total": total})
    new: Any = SimpleNamespace(epsilon=epsilon)
    checks = [*audit_of(policy=policy, history=spent(*before))._noise_check(new)]
    assert [check.passed for check in checks] == ([] if passed else [False])
    forced = [*audit_of(policy=policy, history=spent(*before), force=True)._noise_check(new)]
    assert [check.passed for check in forced] == ([] if passed else [None])
    # The versions of one run count once.
    again = {"spent": [*spent(*before)["spent"], *spent(*before)["spent"]]}
    assert len([*audit_of(policy=policy, history=again)._noise_check(new)]) == (not passed)


def publication(run_id: str, **fields: Any) -> Publication:
    values = {"source": "here", "version": 1}
    return Publication(run_id, datetime(2026, 1, 2), Path("old.duckdb"), "t", "d", "p", **(values | fields))


FOUND: Any = SimpleNamespace(message="too much", reason="", remedy=None, query=None)


@pytest.mark.parametrize(
    ("attacks", "parts", "passed", "breaks"),
    [
        ([], {}, True, 0),
        ([FOUND], {}, False, 1),
        ([FOUND], {"force": True}, None, 1),
        # It shows nothing finer than the release that it is based on: its rows have gone from the source.
        ([FOUND], {"earlier": {"changed_run_ids": ("r",)}}, None, 0),
        (
            [SimpleNamespace(**vars(FOUND) | {"remedy": "less noise"})],
            {"earlier": {"changed_run_ids": ("r",)}},
            False,
            1,
        ),
        (ReleaseError("it is gone"), {}, False, 1),
        (ReleaseError("it is gone"), {"force": True}, None, 1),
        (NotComparedError("too many"), {}, False, 1),
    ],
)
def test_a_release_that_breaks_another_is_refused(
    attacks: Any,
    parts: dict[str, Any],
    passed: bool | None,
    breaks: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (path := tmp_path / "old.duckdb").touch()
    release: Any = SimpleNamespace(
        can_be_base=True, shows_masked_rows=False, promised_k=4, publication=publication("r")
    )
    monkeypatch.setattr(joint_audit, "open_earlier_release", lambda *_: nullcontext(release))
    monkeypatch.setattr(JointAudit, "_hierarchies", lambda *_: (SimpleNamespace(crossing=()), None))

    def find_attacks(*_: Any) -> Any:
        if isinstance(attacks, Exception):
            raise attacks
        return attacks

    monkeypatch.setattr(JointAudit, "_find_attacks", find_attacks)
    audit = audit_of(**parts)
    check = audit._check(replace(publication("r"), path=path), SimpleNamespace())
    assert (check.passed, len(audit.breaks)) == (passed, breaks)
    assert len(audit.refusals) == (passed is False)
    if isinstance(attacks, Exception):  # a release that is gone is not compared
        gone = audit_of(**parts)
        check = gone._check(replace(publication("r"), path=tmp_path / "gone.duckdb"), SimpleNamespace())
        assert (check.passed, gone.breaks, gone.refusals) == (None, [], [])
        interrupted = audit_of(**parts)  # its run may have published it elsewhere
        intent = replace(publication("r"), path=tmp_path / "gone.duckdb", intended_at=datetime(2026, 1, 2))
        assert (interrupted._check(intent, SimpleNamespace()).passed, len(interrupted.breaks)) == (passed, 1)


def test_a_release_that_replaces_another_is_warned_of() -> None:
    for digest, replaced, count in itertools.product("de", [None, publication("r")], [0, 3, 4]):
        elsewhere = [Path(f"c{i}") for i in range(count)]
        notes = audit_of(history={"replaced": replaced, "other_catalogs": elsewhere}).notes(digest)
        assert sum("it replaces the release" in note for note in notes) == (replaced is not None and digest != "d")
        assert sum("releases of this source that are recorded in" in note for note in notes) == bool(count)
        assert sum("and 1 more" in note for note in notes) == (count == 4)


@pytest.mark.parametrize(
    ("keep", "bases", "compared", "replaced"),
    [
        (1, (), ["there"], "v3"),
        (2, (), ["v3", "there"], "v2"),
        (3, (), ["v2", "v3", "there"], "v1"),
        (4, (), ["v1", "v2", "v3", "there"], None),
        (2, ("v3",), ["v3", "v2", "there"], "v1"),  # what the release is based on is compared in any case
    ],
)
def test_a_release_is_compared_with_the_versions_that_stay_beside_it(
    keep: int, bases: tuple[str, ...], compared: list[str], replaced: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Path("old.duckdb")
    publications = [publication(f"v{number}", version=number) for number in (2, 3, 1)]
    publications += [replace(publication("there"), path=Path("there.duckdb")), publication("of others", source="else")]
    recognition = SimpleNamespace(
        recognizes=lambda source: source == "here",
        shares={},
        people=SimpleNamespace(shared={}, compared=()),
        same_rows=SimpleNamespace(warn=lambda _: []),
        undecided_sources=(),
    )
    for name, answer in (
        ("read_ledger", History(publications)),
        ("recognize", recognition),
        ("find_other_catalogs", []),
        ("read_most_rows_per_person", {}),
    ):
        monkeypatch.setattr(publishing, name, lambda *_, answer=answer: answer)
    policy = make_policy({"zip": "mask"}, release={"keep": keep}, catalog={"database": "c.duckdb"})
    earlier, source = SimpleNamespace(run_ids=bases), SimpleNamespace(files=())
    search_input: Any = SimpleNamespace(policy=policy, earlier=earlier, source=source)
    run: Any = SimpleNamespace(engine=None, identity="here")
    people: Any = SimpleNamespace(samples=lambda _: [], why=None)
    history = publishing.read_source_history(run, search_input, target, "run", people)
    assert sorted(record.run_id for record in history.earlier) == sorted(compared)
    assert (history.replaced and history.replaced.run_id) == replaced


def test_releases_are_named_with_those_that_they_are_based_on() -> None:
    first, second = publication("a"), replace(publication("b"), path=Path("new.duckdb"), after=("a", "gone"))
    third = replace(publication("c"), path=Path("third.duckdb"), version=2)
    history = History(
        (first, second, third), drafts=(replace(publication("e"), path=Path("draft.duckdb"), draft=True),)
    )

    def ids(*names: str) -> list[str]:
        return [publication.run_id for publication in find_named_publications(history, names, lambda: [third])]

    assert ids("old") == ids("old.duckdb") == ["a"]
    assert ids("new") == ["a", "b"]
    assert ids("third", "new") == ["a", "b", "c"]
    assert ids("third") == ids("t_v2") == ["c"]
    assert ids("t") == ["a", "b", "c"]
    assert ids("all") == ids("old", "all") == ["c"]
    with pytest.raises(PolicyError, match="'draft' is a draft"):
        ids("draft")
    with pytest.raises(PolicyError, match="'other' is not in the ledger"):
        ids("old", "other")


@pytest.mark.parametrize(("path", "is_refused"), [("old.duckdb", True), ("new.duckdb", False)])
def test_a_draft_replaces_no_release_of_the_ledger(
    path: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the release may be missing: readers may have it. Another draft is replaced."""
    history = History((publication("a"),), drafts=(replace(publication("b"), path=Path("new.duckdb"), draft=True),))
    monkeypatch.setattr(publishing, "read_ledger", lambda *_: history)
    run: Any = SimpleNamespace(engine=None)
    search_input: Any = SimpleNamespace(
        policy=make_policy({"zip": "mask"}, catalog={"database": "c.duckdb"}), source=None
    )
    draft = publishing.DraftEntry(run=run, search_input=search_input, run_id="c", place=Path(path))
    with pytest.raises(ReleaseError, match="a draft does not replace") if is_refused else nullcontext():
        draft.begin()


@pytest.mark.parametrize(
    ("extended", "replaces", "expected"),
    [
        (None, None, {"after": ["a", "b"], "extends": None, "withdraws": None, "only_rows_of": None, "keep": 3}),
        ("a", None, {"after": ["b"], "extends": "a", "withdraws": None, "only_rows_of": None, "keep": 3}),
        (
            None, ReplacedRelease("c", only_its_rows=True),
            {"after": ["a", "b"], "extends": None, "withdraws": "c", "only_rows_of": "c", "keep": 1},
        ),
        (
            None, ReplacedRelease("c", only_its_rows=False),
            {"after": ["a", "b"], "extends": None, "withdraws": "c", "only_rows_of": None, "keep": 1},
        ),
    ],
)  # fmt: skip
def test_the_ledger_records_what_a_release_is_based_on_and_replaces(
    extended: str | None, replaces: ReplacedRelease | None, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A withdrawal keeps no version: it would still have the withdrawn rows."""
    recorded = list[Any]()
    monkeypatch.setattr(publishing, "recording", lambda *arguments: recorded.extend(arguments))
    release = {"database": "r.duckdb", "keep": 3}
    policy = make_policy({"zip": "mask"}, catalog={"database": "c.duckdb"}, release=release)
    search_input: Any = SimpleNamespace(policy=policy, earlier=SimpleNamespace(run_ids=("a", "b")), source=None)
    run: Any = SimpleNamespace(engine=None, identity="here")
    history = SimpleNamespace(same_source=None, recorded_releases=frozenset())
    more: Any = {
        "joint_audit": SimpleNamespace(breaks=[], history=history),
        "extended": None if extended is None else SimpleNamespace(run_id=extended),
        "replaces": replaces,
        "_details": "details",
    }
    entry = publishing.LedgerEntry(run, search_input, "new", Path("r.duckdb"), 9, **more)
    fields = ("published_at", "table_name", "released_rows", "digest", "version", "policy_hash")
    manifest: Any = SimpleNamespace(fingerprint=lambda: "hash", noise=None, epsilon=None, **dict.fromkeys(fields))
    entry.recording(manifest, "sha")
    *_, row, keep, _, details = recorded
    assert {name: row[name] for name in expected if name != "keep"} | {"keep": keep} == expected
    assert (row["run_id"], row["sha256"], row["source"], details) == ("new", "sha", "here", "details")


@pytest.mark.parametrize(
    ("is_recorded", "is_marked", "has_ledger", "expected"),
    [
        (True, False, True, [False]),  # the mark was removed
        (True, False, False, [None]),  # the ledger has no releases of this policy
        (True, True, True, []),
        (False, False, True, []),
    ],
)
def test_a_draft_without_its_mark_is_found_by_the_ledger(
    is_recorded: bool, is_marked: bool, has_ledger: bool, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording.catalog, "is_recorded_draft", lambda *_: is_recorded)
    monkeypatch.setattr(recording.catalog, "read_recorded_sha256", lambda *_: None)
    release = {"database": "r.duckdb", "ledger": has_ledger}
    policy = make_policy({"zip": "mask"}, catalog={"database": "c.duckdb"}, release=release)
    manifest = SimpleNamespace(draft=is_marked)
    verification: Any = SimpleNamespace(manifest=manifest, digest="d", is_file=True, path=Path("r.duckdb"))
    engine: Any = None
    *checks, unrecorded = recording.check_against_ledger(engine, policy, verification, None)
    assert [check.passed for check in checks] == expected
    assert (unrecorded.name, unrecorded.passed) == ("against the ledger: sha256", None)


@pytest.mark.parametrize(
    ("shared", "people", "are_personal", "is_same"),
    [
        (5, 5, (True, False), True),
        (5, 5, (False, True), True),
        (5, 5, (False, False), False),  # neither column numbers people
        (4, 4, (True, True), False),
        (10, 200, (True, True), True),  # one in twenty
        (9, 200, (True, True), False),
    ],
)
def test_sources_share_people_from_five_and_a_twentieth_on(
    shared: int, people: int, are_personal: tuple[bool, bool], is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier_is_personal, is_personal = are_personal
    counts = [("run", "mrn", earlier_is_personal, 3, 0.0, people, shared)]
    monkeypatch.setattr(same_people, "count_shared_people", lambda *_: counts)
    sample: Any = SimpleNamespace(is_personal=is_personal, column="id", most_rows=2, running=0.0)
    engine: Any = None
    expected = [("run", same_people.SharedPeople(shared / people, "id", "mrn", 2, 3))] if is_same else []
    assert [*same_people._shared_people(engine, table("earlier"), [sample])] == expected


@pytest.mark.parametrize(
    ("changes", "current", "is_same"),
    [
        ({}, "(1, 'a', '*'), (3, 'b', '*')", True),  # the values in common have the same labels
        ({}, "(1, 'b', '*'), (2, 'b', '*')", False),
        ({}, "(1, NULL, '*')", False),
        ({}, "(1, 'a', 'all')", True),  # the top is one label
        ({"height": 1}, "(1, 'a', '*')", False),
        ({"open_ends": True}, "(1, 'a', '*')", False),
        ({}, "(1::BIGINT, 'a', '*')", True),
        ({}, "('1', 'a', '*')", False),
    ],
)
def test_hierarchies_are_the_same_if_common_values_have_the_same_labels(
    changes: dict[str, Any], current: str, is_same: bool, connection: duckdb.DuckDBPyConnection
) -> None:
    names = "(level_0, level_1, level_2)"
    connection.execute(f"CREATE OR REPLACE TABLE earlier AS FROM (VALUES (1, 'a', '*'), (2, 'b', '*')) AS t{names}")
    connection.execute(
        f"CREATE OR REPLACE TABLE current AS SELECT *, '' AS label_0 FROM (VALUES {current}) AS t{names}"
    )
    hierarchy = Hierarchy("zip", table("earlier"), 2, 2, "*")
    changed = replace(hierarchy, table=table("current"), **changes)
    assert have_same_labels(DuckDBEngine(connection), hierarchy, changed) is is_same


def test_as_many_earlier_releases_as_a_mark_has_bits_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    publications = [publication("a"), publication("b")]
    run: Any = None
    monkeypatch.setattr(earlier, "MAX_EARLIER_RELEASES", 2)
    monkeypatch.setattr(earlier, "_base_publications", lambda *_: publications)
    assert find_base_publications(run, make_policy({"zip": "mask"})) == publications
    publications.append(publication("c"))
    with pytest.raises(PolicyError, match="3 earlier releases are more than 2"):
        find_base_publications(run, make_policy({"zip": "mask"}))


@pytest.mark.parametrize(
    ("fields", "is_part"),
    [({}, False), ({"extends": "a"}, True), ({"only_rows_of": "a"}, True), ({"after": ("a",)}, False)],
)
def test_a_part_has_some_rows_of_its_source(fields: dict[str, Any], is_part: bool) -> None:
    assert publication("r", **fields).is_part is is_part


RELEASES = """
    run_id VARCHAR, published_at TIMESTAMP, path VARCHAR, table_name VARCHAR, digest VARCHAR, policy_hash VARCHAR,
    source VARCHAR, "after" VARCHAR[], extends VARCHAR, manifest_hash VARCHAR, version INT, sha256 VARCHAR,
    intended_at TIMESTAMP, same_source VARCHAR, draft BOOLEAN, withdraws VARCHAR, only_rows_of VARCHAR, epsilon DOUBLE,
    replaced_at TIMESTAMP, linked BOOLEAN DEFAULT false
"""


def test_the_newest_version_of_a_release_counts() -> None:
    """Publications are not replaced, and have the hash of the newest version of their file; the spent epsilon includes
    replaced releases, but not drafts."""
    rows = [
        ("a", 1, "one.duckdb", 1, "old", False, None, None),
        ("b", 3, "one.duckdb", 3, "new", False, 0.5, None),
        ("c", 2, "one.duckdb", 2, "middle", False, None, None),
        ("d", 4, "two.parquet", None, "two", False, 0.25, 5),
        ("e", 5, "draft.duckdb", None, "draft", True, 0.75, None),
    ]
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS sqlanon_catalog; CREATE SCHEMA sqlanon_catalog.sqlanon")
        connection.execute(f"CREATE TABLE sqlanon_catalog.sqlanon.releases ({RELEASES})")
        connection.execute("CREATE TABLE sqlanon_catalog.sqlanon.secret AS SELECT 's' AS secret")
        connection.execute(
            "CREATE TABLE sqlanon_catalog.sqlanon.exports "
            "(run_id VARCHAR, exported_at TIMESTAMP, path VARCHAR, table_name VARCHAR, dialect VARCHAR, "
            "source VARCHAR, draft BOOLEAN)"
        )
        for name, day, path, version, sha256, draft, epsilon, replaced in rows:
            connection.execute(
                "INSERT INTO sqlanon_catalog.sqlanon.releases (run_id, published_at, path, version, sha256, draft, "
                "epsilon, replaced_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    name,
                    datetime(2026, 1, day),
                    path,
                    version,
                    sha256,
                    draft,
                    epsilon,
                    replaced and datetime(2026, 2, 1),
                ],
            )
        for name, draft in (("x", False), ("y", True)):
            connection.execute(
                "INSERT INTO sqlanon_catalog.sqlanon.exports VALUES (?, '2026-01-01', 'p', 't', 'spark', 's', ?)",
                [name, draft],
            )
        history = read_history(DuckDBEngine(connection))
    publications = [(publication.run_id, publication.sha256) for publication in history.publications]
    assert publications == [("a", "new"), ("c", "new"), ("b", "new")]
    assert [draft.run_id for draft in history.drafts] == ["e"]
    assert [(record.run_id, record.epsilon) for record in history.spent] == [("b", 0.5), ("d", 0.25)]
    assert [export.run_id for export in history.exports] == ["x"]
    assert history.secret == "s"


@pytest.mark.parametrize(
    ("source", "place", "draft", "replaced", "is_named"),
    [
        ("here", "old.duckdb", False, None, True),
        ("here", "old.duckdb", True, None, False),
        ("here", "old.duckdb", False, "2026-02-01", False),
        ("here", "new.duckdb", False, None, False),  # where this release goes
        ("there", "old.duckdb", False, None, False),
    ],
)
def test_releases_of_the_source_in_a_catalog_beside_are_named(
    source: str, place: str, draft: bool, replaced: str | None, is_named: bool, tmp_path: Path
) -> None:
    nearby = tmp_path / "nearby.duckdb"
    with duckdb.connect(nearby) as connection:
        connection.execute(f"CREATE SCHEMA sqlanon; CREATE TABLE sqlanon.releases ({RELEASES})")
        connection.execute(
            "INSERT INTO sqlanon.releases (source, path, draft, replaced_at) VALUES (?, ?, ?, ?)",
            [source, str(tmp_path / place), draft, replaced],
        )
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection)
        other_catalogs = find_other_catalogs(engine, tmp_path / "c.duckdb", "here", tmp_path / "new.duckdb")
    assert other_catalogs == [nearby] * is_named


@pytest.mark.parametrize(
    ("records", "chosen"),
    [
        ({"elsewhere": ("old.duckdb", "q", 3), "here": ("new.duckdb", "q", 1)}, "here"),
        ({"elsewhere": ("old.duckdb", "q", 3), "of the policy": ("old.duckdb", "p", 1)}, "of the policy"),
        ({"of the policy": ("old.duckdb", "p", 3), "here": ("new.duckdb", "q", 1)}, "here"),
        ({"older": ("old.duckdb", "q", 1), "newer": ("old.duckdb", "q", 3)}, "newer"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("are_drafts", [False, True])
def test_the_record_of_a_release_is_the_one_at_its_place(
    records: dict[str, tuple[str, str, int]], chosen: str | None, are_drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then one of the same policy, then the newest, of those with the same rows."""
    policy = make_policy({"zip": "mask"}, source={"table": "t", "key": "id"}, catalog={"database": "c.duckdb"})
    publications = [
        replace(
            publication(run),
            policy_hash=policy.fingerprint() if made_by == "p" else "other",
            path=Path(path),
            published_at=datetime(2026, 1, day),
        )
        for run, (path, made_by, day) in records.items()
    ]
    replacements = [replace(record, digest="other rows", path=Path("new.duckdb")) for record in publications]
    history = History((), [*replacements, *publications]) if are_drafts else History([*replacements, *publications])
    monkeypatch.setattr(recording, "read_ledger", lambda *_: history)
    monkeypatch.setattr(recording.catalog, "is_recorded_withdrawal", lambda *_: False)
    engine: Any = None
    release: Any = SimpleNamespace(digest="d", path=Path("new.duckdb"))
    found = recording.find_publication(engine, policy, release)
    assert (found and found.run_id) == chosen
    without_key = make_policy({"zip": "mask"}, catalog={"database": "c.duckdb"})
    assert recording.find_publication(engine, without_key, release) is None
