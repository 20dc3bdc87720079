"""Strategy mu-argus: the run of a plain one, combinations that are safe, and tables in which all together is not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_properties import quick, thorough

import sqlanon
from properties.local_tasks import LIMITS, SOME_ROWS, Nodes, Plain, task_of
from properties.random_cases import Case
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.pipeline import prepare
from sqlanon.policy.guarantee import CLASSES, select_combinations
from sqlanon.strategies.local.mu_argus import mu_argus
from sqlanon.strategies.local.task import LocalTask, prepare_local_task
from support.lanes import draw_tables
from support.policies import make_policy

Placed = dict[int, Nodes]


# Which combinations


@given(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=6))
def test_the_combinations_have_one_of_each_class(classes: list[str]) -> None:
    identification = {f"a{i}": one for i, one in enumerate(classes)}
    found = select_combinations(identification)
    ranks = sorted({CLASSES.index(one) for one in classes})
    first, second = ranks[0], ranks[:2][-1]
    for three in itertools.combinations(identification, min(3, len(classes))):
        least = sorted(CLASSES.index(identification[name]) for name in three)
        as_wanted = len(classes) < 3 or (least[0] == first and least[1] <= second)
        assert (three in found) == as_wanted
    assert {name for one in found for name in one} == set(identification)


def test_three_classes_are_those_of_mu_argus() -> None:
    """One that is most, one that is at least more, and any third: all of them distinct."""
    identification = {"birth": "most", "zip": "more", "job": "more", "sex": "identifying", "race": "identifying"}
    assert set(select_combinations(identification)) == {
        ("birth", "zip", "job"), ("birth", "zip", "sex"), ("birth", "zip", "race"),
        ("birth", "job", "sex"), ("birth", "job", "race"),
    }  # fmt: skip


# Against a plain one


@dataclass
class Argus:
    """The algorithm in plain Python."""

    plain: Plain
    checked: list[list[int]]
    k: int

    def __post_init__(self) -> None:
        task = self.plain.task
        self.attributes = range(len(task.trees))
        self.levels = [task.search_input.lattice.levels(i) for i in self.attributes]
        self.roots = [tree.root for tree in task.trees]
        self.blankable = [i for i in self.attributes if self.plain.nodes[i][self.roots[i]].released]

    def unsafe(self, placed: Placed, checked: list[list[int]]) -> dict[int, list[int]]:
        """The unsafe rows, with the unsafe combinations that each cell is in."""
        found: dict[int, list[int]] = {}
        for attributes in checked:
            sizes: Counter[Nodes] = Counter()
            for c, nodes in placed.items():
                sizes[tuple(nodes[i] for i in attributes)] += self.plain.n[c]
            for c, nodes in placed.items():
                if sizes[tuple(nodes[i] for i in attributes)] < self.k:
                    counts = found.setdefault(c, [0] * len(self.attributes))
                    for i in attributes:
                        counts[i] += nodes[i] != self.roots[i]
        return found

    def totals(self, unsafe: dict[int, list[int]]) -> list[int]:
        return [sum(self.plain.n[c] * counts[i] for c, counts in unsafe.items()) for i in self.attributes]

    def at(self, steps: Sequence[int]) -> Placed:
        return self.plain.at([self.levels[i][step] for i, step in enumerate(steps)])

    def run(self) -> Placed | None:
        """None: nothing but the full domain is left."""
        if not all(self.levels):
            return None
        steps = []
        for i in self.attributes:
            step = 0
            while step + 1 < len(self.levels[i]):
                alone = self.at([step if i == j else 0 for j in self.attributes])
                if sum(self.plain.n[c] for c in self.unsafe(alone, [[i]])) <= self.plain.allowed:
                    break
                step += 1
            steps.append(step)
        while True:
            placed = self.at(steps)
            unsafe = self.unsafe(placed, self.checked)
            totals = self.totals(unsafe)
            if sum(self.plain.n[c] for c in unsafe) <= self.plain.allowed:
                placed = self.blanked(placed)
                if placed and sum(self.plain.n.values()) - self.plain.rows(placed) <= self.plain.allowed:
                    return placed
            open_ = [i for i in self.attributes if steps[i] + 1 < len(self.levels[i])]
            if not open_:
                return None
            steps[min(open_, key=lambda i: (-totals[i], i))] += 1

    def blanked(self, placed: Placed) -> Placed:
        while unsafe := self.unsafe(placed, self.checked):
            totals, after = self.totals(unsafe), {}
            for c, nodes in placed.items():
                if c not in unsafe:
                    after[c] = nodes
                    continue
                cells = [i for i in self.blankable if unsafe[c][i]]
                if cells:
                    worst = min(cells, key=lambda i: (-unsafe[c][i], -totals[i], i))
                    after[c] = tuple(self.roots[i] if i == worst else node for i, node in enumerate(nodes))
            placed = after
        return placed


CLASS_LISTS = st.lists(st.sampled_from(["identifying", "more", "most"]), min_size=4, max_size=4)


def check(case: Case, limits: Sequence[int], classes: Sequence[str]) -> None:
    with task_of(case, limits, strategy="mu-argus") as bare:
        specs = bare.search_input.policy.attributes
        named = {
            name: specs[name].model_copy(update={"identification": one})
            for name, one in zip(case.hierarchies, classes, strict=False)
        }
        ask = bare.search_input.policy.model_copy(update={"attributes": named})
        task = _with_policy(bare, ask)
        names = list(case.hierarchies)
        listed = select_combinations({name: spec.identification for name, spec in named.items()})
        checked = [[names.index(name) for name in one] for one in listed]
        plain = Plain(task)
        expected = Argus(plain, checked, case.k).run()
        try:
            outcome = mu_argus(task)
        except sqlanon.InfeasibleError:
            assert expected is None
            return
        found = plain.placed(outcome.assignment)
        if expected is None:
            levels = task.search_full_domain()[1]
            expected = plain.kept(plain.at(levels), case.k)
        assert found == expected
        assert sum(plain.n.values()) - plain.rows(found) <= plain.allowed
        for attributes in checked:
            sizes: Counter[Any] = Counter()
            for c, nodes in found.items():
                sizes[tuple(plain.read(nodes)[i] for i in attributes)] += plain.n[c]
            assert min(sizes.values()) >= case.k
        assert all(plain.nodes[i][node].released for nodes in found.values() for i, node in enumerate(nodes))


def _with_policy(task: LocalTask, policy: sqlanon.Policy) -> LocalTask:
    return replace(task, search_input=replace(task.search_input, policy=policy))


@settings(quick, max_examples=draw_tables(5, usual=6))
@given(SOME_ROWS, LIMITS, CLASS_LISTS)
def test_as_a_plain_one(case: Case, limits: list[int], classes: list[str]) -> None:
    check(case, limits, classes)


@pytest.mark.slow
@settings(thorough, max_examples=draw_tables(20, usual=40))
@given(SOME_ROWS, LIMITS, CLASS_LISTS)
def test_as_a_plain_one_many(case: Case, limits: list[int], classes: list[str]) -> None:
    check(case, limits, classes)


# Worked examples

# Sweeney 2002: race, birth date, gender and ZIP of twelve patients.
PATIENTS = [
    ("black", "1965", "male", "02141"),
    ("black", "1965", "male", "02141"),
    ("black", "1965", "female", "02138"),
    ("black", "1965", "female", "02138"),
    ("black", "1964", "female", "02138"),
    ("black", "1964", "female", "02138"),
    ("white", "1964", "male", "02138"),
    ("white", "1965", "female", "02139"),
    ("white", "1964", "male", "02139"),
    ("white", "1964", "male", "02139"),
    ("white", "1967", "male", "02138"),
    ("white", "1967", "male", "02138"),
]
NAMES = ("race", "birth", "sex", "zip")


def classes_of(rows: Sequence[tuple[str, ...]], identification: dict[str, str], limit: float) -> Counter[Any]:
    """What is released, at k = 2."""
    rules: dict[str, Any] = {
        "race": "suppress",
        "birth": {"mask": "right"},
        "sex": "suppress",
        "zip": {"mask": "right"},
    }
    attributes = {
        name: {"role": "quasi", "hierarchy": rule, "identification": identification.get(name, "identifying")}
        for name, rule in rules.items()
    }
    ask = make_policy(attributes, search={"strategy": "mu-argus", "suppression_limit": limit})
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (race VARCHAR, birth VARCHAR, sex VARCHAR, zip VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        with sqlanon.connect(connection) as db, db._space.run(ask) as run:
            steps = StatementRunner(run.engine)
            prepared = prepare(steps, ask, run.source, run.work)
            task = prepare_local_task(steps, prepared, lambda open_, checked, best: None)
            plain = Plain(task)
            return plain.sizes(plain.placed(mu_argus(task).assignment))


def smallest(sizes: Counter[Any], names: Sequence[str]) -> int:
    counts: Counter[Any] = Counter()
    for read, n in sizes.items():
        counts[tuple(read[NAMES.index(name)] for name in names)] += n
    return min(counts.values())


@pytest.mark.slow
def test_combinations_are_safe_and_a_patient_is_alone() -> None:
    """Gender and ZIP are in no combination together, so that nobody sees that one of them is single."""
    sizes = classes_of(PATIENTS, {"birth": "most", "race": "more"}, 0.1)
    assert sizes == Counter({
        ("*", "1964", "female", "02138"): 2, ("*", "1965", "female", "02138"): 2, ("*", "1965", "male", "02141"): 2,
        ("*", "1964", "male", "02138"): 1, ("*", "1964", "male", "02139"): 2, ("*", "1967", "male", "02138"): 2,
    })  # fmt: skip
    assert smallest(sizes, ("race", "birth", "sex")) == smallest(sizes, ("race", "birth", "zip")) == 2
    assert smallest(sizes, NAMES) == 1


@pytest.mark.slow
def test_all_combinations_of_three_are_safe_and_everybody_is_alone() -> None:
    rows = list(itertools.product(("black", "white"), ("1964", "1965"), ("female", "male"), ("02138", "02139")))
    sizes = classes_of(rows, {}, 0)
    assert sizes == Counter(rows)
    assert {smallest(sizes, three) for three in itertools.combinations(NAMES, 3)} == {2}
    assert smallest(sizes, NAMES) == 1


@pytest.mark.slow
def test_cells_of_a_rare_row_are_blanked() -> None:
    """Of two single rows, the cells in most unsafe combinations go; what is left of them reads alike."""
    sizes = classes_of(PATIENTS, {"birth": "most", "zip": "more"}, 0.2)
    assert sizes["white", "*", "*", "*"] == 2
    assert sum(sizes.values()) == len(PATIENTS)
    assert sum(n for read, n in sizes.items() if "*" not in read) == 10


# The policy


def test_identification_is_for_mu_argus() -> None:
    spec = {"role": "quasi", "hierarchy": "suppress", "identification": "most"}
    with pytest.raises(sqlanon.PolicyError, match=r"identification.*applies to strategy mu-argus, not to optimal"):
        make_policy({"zip": spec})
    with pytest.raises(sqlanon.PolicyError, match=r"identification.*applies to quasi-identifiers"):
        make_policy({"zip": spec, "illness": {"role": "sensitive", "identification": "most"}})
    with pytest.raises(sqlanon.PolicyError, match="identification"):
        make_policy({"zip": spec | {"identification": "much"}}, search={"strategy": "mu-argus"})
    policy = make_policy({"zip": spec}, search={"strategy": "mu-argus"})
    assert sqlanon.Policy.model_validate_json(policy.model_dump_json()).attributes["zip"].identification == "most"
    plain = make_policy({"zip": "suppress"})
    assert "identification" not in plain.model_dump(mode="json")["attributes"]["zip"]


@pytest.mark.slow
def test_the_release_says_what_it_guarantees(tmp_path: Path) -> None:
    attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in NAMES}
    rows = list(itertools.product("ab", "cd", "ef", "gh"))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (race VARCHAR, birth VARCHAR, sex VARCHAR, zip VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        with sqlanon.connect(connection) as db:
            ask = make_policy(attributes, search={"strategy": "mu-argus"})
            result = db.anonymize(ask)
            release = result.publish(tmp_path / "r.duckdb")
            assert (result.score, result.smallest_class, release.manifest.guarantee) == (0, 1, "combinations")
            for verification in (release.verify(), db.verify(release.path, ask)):
                checks = {check.name: check for check in verification.checks}
                assert verification.verified
                assert checks["2-anonymity of race, birth, sex"].passed
                assert checks["2-anonymity"].passed is None
                assert checks["2-anonymity"].message.startswith("not guaranteed: over all quasi-identifiers together")
