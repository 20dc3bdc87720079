"""A release that is made from an earlier one shows nothing that readers of the earlier one could not compute."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oracles.oracle_linked import Known, LinkedDatabase, LinkedTable, Outcome, Row, State, View, evaluate, loss
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.database import connect
from sqlanon.errors import InfeasibleError
from sqlanon.linked.publish.stage import LinkedRelease
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.lanes import draw_tables, some
from support.linked_hospital import POLICY, fewest_candidates, fix_levels, known_of, make_hospital

pytestmark = pytest.mark.slow

STRICTER: dict[Known, Known] = {1: 2, 2: 3, 3: "all", "all": "all"}


def read_release(path: Path, database: LinkedDatabase) -> LinkedDatabase:
    """The released tables, as a reader without the source has them: rows are numbered by their new keys."""
    tables = []
    with duckdb.connect(str(path), read_only=True) as connection:
        for t, table in enumerate(database.tables):
            parent = "NULL" if table.parent is None else f"parent_{t} - 1"
            columns = ", ".join([f"id_{t} - 1", parent, *table.names])
            rows = [Row(key, above, tuple(labels)) for key, above, *labels in
                    connection.execute(f"SELECT {columns} FROM {table.name} ORDER BY id_{t}").fetchall()]  # fmt: skip
            tables.append(LinkedTable(table.name, table.parent, table.names, table.hierarchies, tuple(rows)))
    return LinkedDatabase(tuple(tables))


@dataclass(frozen=True)
class RaisedHierarchy:
    """A hierarchy over the labels of a level."""

    labels: tuple[dict[Any, Any], ...]

    @property
    def height(self) -> int:
        return len(self.labels) - 1

    def label(self, value: Any, level: int) -> Any:
        return self.labels[level].get(value, value)


def raise_hierarchies(database: LinkedDatabase, source: LinkedDatabase, levels: tuple[int, ...]) -> LinkedDatabase:
    """The released tables with hierarchies over their labels, which readers know from the policy."""
    numbers, tables = iter(levels), []
    for table, original in zip(database.tables, source.tables, strict=True):
        hierarchies: list[Any] = []
        for hierarchy, level in zip(original.hierarchies, numbers, strict=False):
            values = (*hierarchy.paths, None)
            hierarchies.append(RaisedHierarchy(tuple(
                {hierarchy.label(value, level): hierarchy.label(value, higher) for value in values}
                for higher in range(level, hierarchy.height + 1)
            )))  # fmt: skip
        tables.append(LinkedTable(table.name, table.parent, table.names, tuple(hierarchies), table.rows))
    return LinkedDatabase(tuple(tables))


def count_records(database: LinkedDatabase, levels: tuple[int, ...], state: State) -> Counter[Hashable]:
    """The persons with all their rows."""
    view = View(database, levels)
    return Counter(view.signature(state, 0, person) for person in state.persons)


def publish(case: LinkedCase, folder: Path, name: str, **sections: Any) -> tuple[LinkedRelease, Any]:
    tree = case.policy(
        source={"database": str(folder / "source.duckdb")}, catalog={"database": str(folder / "private.duckdb")}
    )
    for section, keys in sections.items():
        tree[section] = {**tree.get(section, {}), **keys}
    with connect() as db:
        result = db.anonymize(LinkedPolicy(**tree))
        release = result.publish(folder / name)
        verification = db.verify(folder / name, LinkedPolicy(**tree))
        assert verification.verified, verification.failures
        return release, result


def feasible_releases(
    case: LinkedCase, released: State, levels: tuple[int, ...], k: int, known: Known, allowed: int
) -> Iterator[Outcome]:
    """The generalizations that are nowhere finer than a release, with the rows of it that can stay."""
    database = case.database
    for higher in itertools.product(
        *(range(level, height + 1) for level, height in zip(levels, database.heights, strict=True))
    ):
        state = View(database, higher).peel(released, k, known)
        suppressed = len(database.everything.persons - state.persons)
        if state.persons and suppressed <= allowed:
            yield Outcome(higher, state, loss(database, higher, state, case.weights), suppressed, 0)


CASES = small_cases(40, draw_tables(8, 60))


@pytest.mark.parametrize("case", some(CASES, every=3))
def test_a_release_from_an_earlier_one_is_the_best_that_readers_of_it_could_make(
    case: LinkedCase, tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        case.fill(connection)
    try:
        first, first_result = publish(case, tmp_path, "first.duckdb")
    except InfeasibleError:
        return
    base = evaluate(case.database, first_result.levels, case.k, case.known, case.weights)
    k, known, allowed = case.k + 1, STRICTER[case.known], len(case.database.everything.persons) * 3 // 4
    outcomes = list(feasible_releases(case, base.state, base.levels, k, known, allowed))
    changes = {"privacy": {"k": k, "known": known}, "search": {"suppression_limit": 0.75}}
    try:
        second, result = publish(case, tmp_path, "second.duckdb", release={"after": "first"}, **changes)
    except InfeasibleError:
        assert not outcomes
        return
    assert result.optimal
    assert result.score == pytest.approx(min(outcome.score for outcome in outcomes), abs=1e-9)
    # A reader of the first release makes the second one: the attack on both sees no more than the first shows.
    readers = raise_hierarchies(read_release(first.path, case.database), case.database, base.levels)
    steps = tuple(level - lower for level, lower in zip(result.levels, base.levels, strict=True))
    made = View(readers, steps).peel(readers.everything, k, known)
    released = read_release(second.path, case.database)
    lowest = (0,) * len(steps)
    unchanged = raise_hierarchies(released, case.database, result.levels)
    assert count_records(readers, steps, made) == count_records(unchanged, lowest, unchanged.everything)
    assert View(unchanged, lowest).is_safe(unchanged.everything, k, known)


PUBLIC = ("--set", "privacy.k=5", "--set", "search.suppression_limit=0.6", "--set", 'release.after="release.duckdb"')


@pytest.fixture(scope="module")
def research_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hospital and a release for a few readers, in its catalog."""
    folder = tmp_path_factory.mktemp("research")
    make_hospital(folder, fix_levels(POLICY))
    assert cli("anonymize", folder / "policy.toml").status == 0
    return folder


def publish_public(folder: Path, *options: str | Path) -> Any:
    """Publish a stricter release for everybody in addition to the first one."""
    return cli("anonymize", folder / "policy.toml", "--output", folder / "public", *options)


@pytest.fixture(scope="module")
def both_releases(research_release: Path) -> Path:
    """The folder with the stricter release, too."""
    ended = publish_public(research_release, *PUBLIC)
    assert (ended.status, ended.err) == (0, "")
    return research_release


def test_a_stricter_release_stands_beside_the_one_that_it_is_made_from(both_releases: Path) -> None:
    with duckdb.connect() as connection:
        files = both_releases / "public"
        known = known_of(
            lambda query: connection.execute(query.replace("FROM ", f"FROM '{files}/") + ".parquet'").fetchall()
        )
    assert fewest_candidates(known) >= 5
    from_public = publish_public(both_releases, *PUBLIC[:-1], 'release.after="public"', "--output", "third")
    assert "was itself made from another release: name that one" in from_public.err


def test_sibling_and_equal_releases_can_be_published(both_releases: Path) -> None:
    again = publish_public(both_releases, *PUBLIC, "--set", "privacy.known=1", "--output", both_releases / "more")
    assert (again.status, again.err) == (0, "")
    equal = cli("anonymize", both_releases / "policy.toml")
    assert (equal.status, equal.err) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[release]", '[release]\nafter = "none"', "'none' is not in the ledger, which has: "),
        ("[search]", '[search]\nstrategy = "mondrian"', "'mondrian' has no levels to compare with an earlier release"),
        ("1, max_level = 1 }\n\n", "0, max_level = 0 }\n\n", "has level 1 of patients.zip, and max_level"),
        ('"insensitive"', '"identifying"', "the source does not give the persons and rows of release.duckdb"),
        ("DELETE FROM visits WHERE visit_id = 5001", "", "the source does not give the persons and rows of"),
    ],
)  # fmt: skip
def test_policies_that_contradict_the_earlier_release_are_refused(
    research_release: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = shutil.copytree(research_release, tmp_path / "changed", ignore=shutil.ignore_patterns("public", "more"))
    text = (folder / "policy.toml").read_text(encoding="utf-8")
    text += f'\n[catalog]\ndatabase = "{research_release / "sqlanon.catalog.duckdb"}"\n'
    if old.startswith("DELETE"):
        with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
            connection.execute(old)
    else:
        assert old in text
        text = text.replace(old, new)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    ended = publish_public(folder, *PUBLIC[: 4 if "after" in new else 6])
    assert ended.status == 2
    assert message in " ".join(ended.err.split())
