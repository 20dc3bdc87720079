"""Random releases of one small table in one catalog, and what readers of each two of them learn.

    python tests/properties/random_releases.py [--pairs 5000] [--seed 0] [--kinds grown coarser] [--folder DIR]

Each pair is held against `oracle_together`. Printed are, by kind of case: how many pairs were accepted and safe,
accepted and unsafe, refused and safe, refused and unsafe; and the number of unsafe triples whose pairs
are accepted and safe. For a pair on which the audit and the oracle differ, a script goes to the folder: it prints the
pair with the findings of the oracle.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import duckdb

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import sqlanon  # noqa: E402
from oracles.oracle_together import Finding, Person, Released, Together  # noqa: E402
from sqlanon.errors import InfeasibleError, PolicyError, SourceError  # noqa: E402

FULL_DOMAIN = ("optimal", "flash", "datafly", "ola")
LOCAL = ("mondrian", "local", "k-similar", "subtree", "cells")

USUAL = ("grown after", "coarser")
"""Kinds of pairs that a data holder expects to be accepted."""

KINDS = (
    *("same", "grown", "grown after", "erased", "changed", "coarser", "coarser grown"),
    *("strategy", "k", "hierarchy", "attributes", "mixed", "mixed", "mixed", "mixed"),
)
"""Differences of the second policy, or changes of the table; a mixed case has several releases of all
kinds."""

STEP = 500
"""Number of pairs after which the counts are printed, in case the run is stopped."""

MIXED = 6
"""The releases of a mixed case."""

SHARED = ("illness", "cost")

Row = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A policy: the hierarchy of each quasi-identifier as a name, and the other sections as in TOML."""

    quasi: Mapping[str, str]
    shown: Sequence[str]
    k: int
    distinct: int
    strategy: str
    limit: float
    suppressed: str
    summary: str | None = None
    min_level: Mapping[str, int] = field(default_factory=dict)
    after: bool = False


@dataclass(frozen=True)
class Case:
    """Consecutive releases: the table at that time, and the policy."""

    kind: str
    seed: int
    domains: Mapping[str, list[Any]]
    hierarchies: Mapping[str, list[list[Any]]]
    steps: Sequence[tuple[list[Row], Asked]]


# --- a random case ------------------------------------------------------------------------------------


def draw_case(seed: int, kinds: Sequence[str] = KINDS) -> Case:
    draw = random.Random(seed)
    kind = draw.choice(kinds)
    names = ["x", "y", "z"][: draw.choice([1, 1, 2, 2, 3])]
    domains: dict[str, list[Any]] = {}
    hierarchies = {}
    for name in names:
        size = draw.choice([2, 3, 4, 4])
        domains[name] = list(range(size)) if draw.random() < 0.5 else list("abcd"[:size])
        for number in (0, 1):
            hierarchies[f"{name}{number}"] = draw_hierarchy(draw, domains[name])
    k = draw.choice([2, 2, 3, 4])
    rows = [draw_row(draw, domains, i) for i in range(draw.randint(max(6, 2 * k), 12))]
    visible = draw.choice([["illness"], ["illness"], ["illness", "cost"], []])
    request = Asked(
        quasi={name: f"{name}0" for name in names},
        shown=visible,
        k=k,
        distinct=draw.choice([1, 1, 2]) if visible else 1,
        strategy=draw.choice([*FULL_DOMAIN, *LOCAL, "optimal", "mondrian"]),
        limit=draw.choice([0, 0.2, 0.4]),
        suppressed=draw.choice(["drop", "mask"]),
    )
    if kind == "grown after":
        request = replace(request, strategy=draw.choice(FULL_DOMAIN), suppressed="drop")
    if kind.startswith("coarser"):
        request = replace(request, strategy=draw.choice(["optimal", "flash"]))
    steps = [(rows, with_summary(draw, request))]
    for _ in range(MIXED - 1 if kind == "mixed" else 1):
        steps.append(draw_step(draw, kind, domains, *draw.choice(steps)))
    return Case(kind, seed, domains, hierarchies, steps)


def with_summary(draw: random.Random, request: Asked) -> Asked:
    summary = draw.choice(["range", "set"]) if request.strategy in ("mondrian", "k-similar") else None
    return replace(request, summary=summary)


def draw_step(
    draw: random.Random, kind: str, domains: Mapping[str, list[Any]], rows: list[Row], request: Asked
) -> tuple[list[Row], Asked]:
    """Draw the next state of the table and of the policy."""
    return draw_table(draw, kind, domains, rows), draw_policy(draw, kind, domains, request)


def draw_table(draw: random.Random, kind: str, domains: Mapping[str, list[Any]], rows: list[Row]) -> list[Row]:
    mixed, rows = kind == "mixed", [dict(row) for row in rows]
    if kind in ("grown", "grown after", "coarser grown") or (mixed and draw.random() < 0.3):
        new = 1 + max(row["id"] for row in rows)
        rows += [draw_row(draw, domains, new + i) for i in range(draw.randint(1, 3))][: max(13 - len(rows), 1)]
    if kind == "erased" or (mixed and draw.random() < 0.2):
        rows = draw.sample(rows, len(rows) - draw.randint(1, min(3, len(rows) - 1)))
    if kind == "changed" or (mixed and draw.random() < 0.1):
        draw.choice(rows).update([(name := draw.choice([*domains, *SHARED]), draw.choice(rows)[name])])
    return rows


def draw_policy(draw: random.Random, kind: str, domains: Mapping[str, list[Any]], request: Asked) -> Asked:
    mixed, same = kind == "mixed", request
    if kind == "grown after":
        request = replace(request, after=True)
    if kind.startswith("coarser") or (mixed and draw.random() < 0.2):
        request = replace(request, min_level={name: draw.choice([0, 1, 1, 2]) for name in domains})
    if kind == "strategy" or (mixed and draw.random() < 0.4):
        request = with_summary(draw, replace(request, strategy=draw.choice([*FULL_DOMAIN, *LOCAL])))
    if kind == "k" or (mixed and draw.random() < 0.3):
        request = replace(request, k=draw.choice([2, 3, 4, 5]))
    if kind == "hierarchy" or (mixed and draw.random() < 0.2):
        name = draw.choice([*domains])
        request = replace(request, quasi={**request.quasi, name: f"{name}{draw.choice([0, 1, 1])}"})
    if kind == "attributes" or (mixed and draw.random() < 0.15):
        names = draw.sample([*domains], draw.randint(1, len(domains)))
        request = replace(request, quasi={name: f"{name}0" for name in names})
    if mixed and draw.random() < 0.3:
        request = replace(request, suppressed=draw.choice(["drop", "mask"]), limit=draw.choice([0, 0.2, 0.4]))
    if mixed and request != same and draw.random() < 0.1:
        request = replace(request, shown=[], distinct=1)
    return request


def draw_row(draw: random.Random, domains: Mapping[str, list[Any]], number: int) -> Row:
    row: Row = {"id": number}
    for name, domain in domains.items():
        row[name] = draw.choice(domain + domain[:1])
    return {**row, "illness": draw.choice(["flu", "flu", "gout", "HIV"]), "cost": draw.choice([1, 1, 2])}


def draw_hierarchy(draw: random.Random, domain: list[Any]) -> list[list[Any]]:
    """The labels of each value, from the value to ``*``: bands, cut at one place or at two."""
    middle = []
    if len(domain) > 2 and draw.random() < 0.85:
        cuts = sorted(draw.sample(range(1, len(domain)), draw.choice([1, 1, 2]) if len(domain) > 3 else 1))
        bands = [domain[a:b] for a, b in zip([0, *cuts], [*cuts, len(domain)], strict=True)]
        middle.append({value: label_of(band) for band in bands for value in band})
        if len(bands) == 3:
            bands = [bands[0] + bands[1], bands[2]] if draw.random() < 0.5 else [bands[0], bands[1] + bands[2]]
            middle.append({value: label_of(band) for band in bands for value in band})
    return [[value, *(labels[value] for labels in middle), "*"] for value in domain]


def label_of(band: list[Any]) -> str:
    if len(band) == 1:
        return str(band[0])
    return f"{band[0]}-{band[-1]}" if isinstance(band[0], int) else "".join(band)


# --- published ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """A release of a case: its rows, the numbers of the earlier ones that cause its refusal, and the message."""

    step: int
    rows: list[Row]
    refused: frozenset[int]
    warnings: Sequence[str]


def policy(case: Case, i: int, folder: Path) -> sqlanon.Policy:
    _, request = case.steps[i]
    attributes: dict[str, dict[str, Any]] = {}
    for name, hierarchy in request.quasi.items():
        file = folder / f"{hierarchy}.csv"
        with file.open("w", encoding="utf-8", newline="") as target:
            csv.writer(target, delimiter=";", lineterminator="\n").writerows(case.hierarchies[hierarchy])
        attributes[name] = {"role": "quasi", "hierarchy": {"file": str(file)}}
        if level := min(request.min_level.get(name, 0), len(case.hierarchies[hierarchy][0]) - 1):
            attributes[name]["min_level"] = level
    for name in request.shown:
        attributes[name] = {"role": "sensitive" if name == "illness" else "insensitive"}
    privacy: dict[str, Any] = {"k": request.k}
    if request.distinct > 1:
        privacy["l_diversity"] = [{"attribute": "illness", "kind": "distinct", "l": request.distinct}]
    search: dict[str, Any] = {"suppression_limit": request.limit}
    search |= {"suppression": "cells"} if request.strategy == "cells" else {"strategy": request.strategy}
    if request.summary:
        search["summary"] = request.summary
    release: dict[str, Any] = {"database": folder / f"{i}.duckdb", "table": "t"}
    if request.strategy != "cells" and not request.after:
        release["suppressed"] = request.suppressed
    if request.after:
        release["after"] = "all"
    return sqlanon.Policy(
        source={
            "table": "t",
            "undeclared": "drop",
            "person": False,
            **({"key": ["id"]} if case.kind == "grown after" else {}),
        },
        attributes=attributes,
        privacy=privacy,
        search=search,
        release=release,
        catalog={"database": folder / "catalog.duckdb"},
    )


@contextmanager
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@cache
def live() -> tuple[duckdb.DuckDBPyConnection, sqlanon.Database]:
    """One connection for all pairs: connecting takes as long as anonymizing."""
    connection = duckdb.connect(config={"threads": 1})
    return connection, sqlanon.connect(connection)


def publish(case: Case) -> list[Release]:
    """Publish the releases of a case that can be made, by force where they are refused."""
    connection, db = live()
    releases: list[Release] = []
    with place() as folder:
        for i, (rows, _) in enumerate(case.steps):
            fill(connection, rows)
            try:
                result = db.anonymize(policy(case, i, folder))
            except (InfeasibleError, PolicyError, SourceError):
                continue
            result.publish(force=True)
            releases.append(Release(i, read(folder / f"{i}.duckdb"), breaks(folder, i), result.warnings))
    return releases


def breaks(folder: Path, i: int) -> frozenset[int]:
    """The releases that one breaks, as the ledger has it."""
    with duckdb.connect(folder / "catalog.duckdb", read_only=True) as reader:
        query = "SELECT breaks FROM sqlanon.ledger WHERE path LIKE ?"
        ((paths,),) = reader.execute(query, [f"%/{i}.duckdb"]).fetchall()
    return frozenset(int(Path(path).stem) for path in paths or ())


def fill(connection: duckdb.DuckDBPyConnection, rows: list[Row]) -> None:
    types = {name: "INTEGER" if isinstance(value, int) else "VARCHAR" for name, value in rows[0].items()}
    connection.execute(f"CREATE OR REPLACE TABLE t ({', '.join(f'{name} {type_}' for name, type_ in types.items())})")
    for row in rows:
        connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", [*row.values()])


def read(path: Path) -> list[Row]:
    with duckdb.connect(path, read_only=True) as reader:
        relation = reader.execute("FROM t")
        names = [column[0] for column in relation.description]
        return [dict(zip(names, row, strict=True)) for row in relation.fetchall()]


def values_of(label: Any, domain: list[Any], hierarchy: list[list[Any]]) -> frozenset[Any]:
    """The ground values of a label: a node of the hierarchy, a range, or a set of nodes."""
    label = str(label)
    nodes: dict[str, set[Any]] = {}
    for value, *upper in hierarchy:
        for node in (value, *upper):
            nodes.setdefault(str(node), set()).add(value)
    if label in nodes:
        return frozenset(nodes[label])
    if label.startswith("{"):
        return frozenset().union(*(nodes[member] for member in label[1:-1].split(", ")))
    if bounds := re.fullmatch(r"(\d+)-(\d+)|≥(\d+)|<(\d+)", label):
        first, last, least, beyond = (None if bound is None else int(bound) for bound in bounds.groups())
        low = first if least is None else least
        high = beyond - 1 if beyond is not None else last
        return frozenset(value for value in domain if (low is None or low <= value) and (high is None or value <= high))
    raise ValueError(label)


# --- held against the oracle --------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two releases of a case, as a reader has them, and whether the second one is accepted after the first."""

    case: Case
    releases: tuple[Release, Release]

    @property
    def accepted(self) -> bool:
        return self.releases[0].step not in self.releases[1].refused

    @property
    def asked(self) -> list[Asked]:
        return [self.case.steps[release.step][1] for release in self.releases]

    @cached_property
    def findings(self) -> list[Finding]:
        return findings(self.case, self.releases)

    @property
    def ways(self) -> set[tuple[str, str]]:
        return {(finding.way, finding.requirement) for finding in self.findings}

    @property
    def verdict(self) -> str:
        return f"{'accepted' if self.accepted else 'refused'} {'UNSAFE' if is_unsafe(self.findings) else 'safe'}"

    def __str__(self) -> str:
        lines = [f"{self.case.kind}, seed {self.case.seed}: {self.verdict}"]
        for release, request in zip(self.releases, self.asked, strict=True):
            lines.append(f"policy {release.step}: {request}")
            for name, hierarchy in request.quasi.items():
                paths = (" ".join(map(str, path)) for path in self.case.hierarchies[hierarchy])
                lines.append(f"  {name}: {'; '.join(paths)}")
            table = self.case.steps[release.step][0]
            lines.append("  source  " + "  ".join(",".join(map(str, row.values())) for row in table))
            counts = Counter(tuple(map(str, row.values())) for row in release.rows)
            lines += [f"  {n} x {','.join(row)}" for row, n in sorted(counts.items())]
        return "\n".join([*lines, *self.releases[1].warnings, *map(str, self.findings)])


def pairs(case: Case) -> list[Pair]:
    return [Pair(case, (first, second)) for first, second in itertools.combinations(publish(case), 2)]


def triples(drawn: Sequence[Pair]) -> Iterator[tuple[Release, ...]]:
    """Three releases; each pair is accepted and safe."""
    steps = {release.step: release for pair in drawn for release in pair.releases}
    good = {tuple(release.step for release in pair.releases) for pair in drawn if pair.verdict == "accepted safe"}
    for three in itertools.combinations(sorted(steps), 3):
        if all(two in good for two in itertools.combinations(three, 2)):
            yield tuple(steps[step] for step in three)


def is_unsafe(results: Sequence[Finding]) -> bool:
    """Whether readers can single out few persons, or have few candidates for a person whom they know."""
    return any(finding.way in ("sure", "victim") for finding in results)


def findings(case: Case, releases: Sequence[Release]) -> list[Finding]:
    """Unsafe findings in all releases that readers have."""
    tables, policies = zip(*(case.steps[release.step] for release in releases), strict=True)
    shared = [name for name in SHARED if all(name in request.shown for request in policies)]
    names = [name for name in case.domains if any(name in request.quasi for request in policies)]
    domains = tuple(frozenset(case.domains[name]) for name in names)
    sides = []
    for request, release, table in zip(policies, releases, tables, strict=True):
        seen = []
        for row in release.rows:
            labels = tuple(
                values_of(row[name], case.domains[name], case.hierarchies[request.quasi[name]])
                if name in request.quasi
                else frozenset(case.domains[name])
                for name in names
            )
            seen.append((labels, tuple(row[name] for name in shared)))
        sides.append(Released(seen, drops=len(seen) < len(table)))
    numbered = [{row["id"]: row for row in table} for table in tables]
    persons = {
        Person(tuple(row[name] for name in names), tuple(number in numbers for numbers in numbered))
        for table in numbered
        for number, row in table.items()
    }
    sensitive = shared.index("illness") if "illness" in shared else None
    k = min(max(request.k, request.distinct) for request in policies)
    distinct = min(request.distinct for request in policies)
    return Together(sides, domains, sensitive).findings(k, distinct, [*persons])


SCRIPT = '''"""
{pair}
"""
# With PYTHONPATH=TREE:TREE/tests/oracles:TREE/tests/ledger, of the tree to be held.
from random_releases import draw_case, pairs

for pair in pairs(draw_case({seed}, {kinds!r})):
    if [release.step for release in pair.releases] == {steps}:
        print(pair)
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[tuple[str, str]] = Counter()
    ways: Counter[tuple[str, str]] = Counter()
    done, seed, started = 0, options.seed, time.monotonic()
    while done < options.pairs and time.monotonic() - started < options.seconds:
        case = draw_case(seed, options.kinds)
        seed += 1
        try:
            drawn = pairs(case)
            for pair in drawn:
                counts[case.kind, pair.verdict] += 1
                ways[pair.verdict, ", ".join(sorted({" ".join(way) for way in pair.ways}))] += 1
        except Exception:  # whatever breaks a case is something to look at
            counts[case.kind, "error"] += 1
            print(f"{case.kind}, seed {case.seed}:", traceback.format_exc(limit=-3), flush=True)
            continue
        for three in triples(drawn):
            counts["three", "UNSAFE" if is_unsafe(findings(case, three)) else "safe"] += 1
        done += len(drawn)
        for pair in drawn:
            if pair.verdict in ("accepted UNSAFE", "refused safe") and options.folder is not None:
                write_script(options.folder, pair, options.kinds)
        if done // STEP > (done - len(drawn)) // STEP:
            print(f"{done} pairs, seeds {options.seed} to {seed - 1}, {time.monotonic() - started:.0f} s", flush=True)
            print_counts(options.kinds, counts)
    print(f"{done} pairs, seeds {options.seed} to {seed - 1}, {time.monotonic() - started:.0f} s")
    print_counts(options.kinds, counts)
    for (verdict, which), n in sorted(ways.items()):
        print(f"{n} {verdict}: {which}")


def print_counts(kinds: Sequence[str], counts: Mapping[tuple[str, str], int]) -> None:
    for kind in [*dict.fromkeys(kinds), "three"]:
        print(
            f"{kind}: "
            + ", ".join(f"{n} {name}" for (counted_kind, name), n in sorted(counts.items()) if counted_kind == kind)
        )


def write_script(folder: Path, pair: Pair, kinds: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    steps = [release.step for release in pair.releases]
    script = SCRIPT.format(pair=pair, seed=pair.case.seed, kinds=tuple(kinds), steps=steps)
    name = "_".join([*pair.verdict.split(), pair.case.kind.replace(" ", "_"), str(pair.case.seed), *map(str, steps)])
    (folder / f"{name}.py").write_text(script, encoding="utf-8")


if __name__ == "__main__":
    main()
