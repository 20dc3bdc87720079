"""Ten questions to releases of Adult and FARS, answered by the macros for analysts and by the source.

    python benchmarks/analysis.py

Each release has k = 5: one of the strategy `optimal` (at most 5 % of the rows suppressed, ages in
intervals of at most 10 years), one of
`mondrian` with sets. Columns other than the age are read with their hierarchy files: a group counts by its leaves, and
`*` as unknown. For each question: the true answer, the expected one, its error, and the bounds, which must hold.

Ten more questions are on the sets of Adult, answered by `sqlanon.estimated_members`, with the values of the column.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from harness import DATA

import sqlanon

AGES = {"adult": "age", "fars": "iage"}
STRATEGIES = ("optimal", "mondrian")


@dataclass(frozen=True)
class Question:
    """A count of rows, or (``of`` set) the share of them among those of ``of``; ``average``: the mean age instead."""

    words: str
    ages: tuple[int | None, int | None] = (None, None)
    values: tuple[tuple[str, str], ...] = ()
    given: tuple[str, ...] | None = None  # a share: of the rows that meet the conditions on the age and these columns
    average: bool = False


@dataclass(frozen=True)
class Answer:
    dataset: str
    strategy: str
    question: str
    truth: float
    lower: float
    expected: float
    upper: float

    @property
    def holds(self) -> bool:
        return self.lower - 1e-9 <= self.truth <= self.upper + 1e-9

    @property
    def error(self) -> float:
        """Relative to the truth."""
        return abs(self.expected - self.truth) / abs(self.truth)


RICH, FATAL = ("salary-class", ">50K"), ("iinjury", "Fatal Injury")
QUESTIONS = {
    "adult": (
        Question("aged 30 to 45", (30, 45)),
        Question("aged 65 or more", (65, None)),
        Question("aged under 25", (None, 24)),
        Question("women aged 25 to 54", (25, 54), (("sex", "Female"),)),
        Question("Black, aged 18 to 35", (18, 35), (("race", "Black"),)),
        Question("divorced women", (None, None), (("sex", "Female"), ("marital-status", "Divorced"))),
        Question("over 50K, aged 50 to 59", (50, 59), (RICH,)),
        Question("share of over 50K among 35 to 44", (35, 44), (RICH,), ()),
        Question("average age", average=True),
        Question("average age of over 50K", values=(RICH,), average=True),
    ),
    "fars": (
        Question("aged 16 to 24", (16, 24)),
        Question("aged 65 or more", (65, None)),
        Question("aged under 16", (None, 15)),
        Question("women aged 25 to 44", (25, 44), (("isex", "Female"),)),
        Question("men killed, aged 20 to 29", (20, 29), (("isex", "Male"), FATAL)),
        Question("killed in July", (None, None), (("ideathmon", "July"),)),
        Question("killed, in Texas", (None, None), (FATAL, ("istatenum", "Texas"))),
        Question("share of killed among 75 or more", (75, None), (FATAL,), ()),
        Question("average age", average=True),
        Question("average age of the killed", values=(FATAL,), average=True),
    ),
}


def columns_of(dataset: str) -> list[str]:
    with (DATA / dataset / f"{dataset}.csv").open(encoding="utf-8") as file:
        return next(csv.reader(file, delimiter=";"))


def policy(dataset: str, strategy: str) -> sqlanon.Policy:
    folder, age = DATA / dataset, AGES[dataset]
    hierarchies: dict[str, object] = {
        name: {"file": str(folder / f"hierarchy_{name}.csv")} for name in columns_of(dataset)
    }
    hierarchies[age] = {"intervals": [5, 10, 20, 40]}
    search = {"strategy": strategy, "suppression_limit": 0.05}
    attributes = {name: {"role": "quasi", "hierarchy": rule} for name, rule in hierarchies.items()}
    if strategy == "mondrian":
        search |= {"summary": "set"}
    else:
        attributes[age] |= {"max_level": 2}
    return sqlanon.Policy(
        source={"files": str(folder / f"{dataset}.csv")},
        attributes=attributes,
        privacy={"k": 5},
        search=search,
    )


LEAVES = """
    CREATE TEMP TABLE "leaves of {name}" AS
    SELECT DISTINCT level, cells[1] AS leaf
    FROM (
        SELECT cells, unnest(cells) AS level
        FROM (SELECT string_split(line, ';') FROM read_csv('{file}', columns={{'line': 'VARCHAR'}},
            header=false, delim='\\0', quote='')) AS f(cells)
    )
"""
SHARES = """
    SELECT label, CASE WHEN label <> '*' THEN count(*) FILTER (leaf = $value) / count(*) END AS share
    FROM (SELECT label, unnest(sqlanon.members(label)) AS level FROM (SELECT DISTINCT "{name}" AS label FROM release))
    JOIN "leaves of {name}" USING (level)
    GROUP BY label
"""


class Reader:
    """A release, and nothing else but the hierarchy files."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, dataset: str) -> None:
        self.connection, self.dataset, self.age = connection, dataset, AGES[dataset]
        self.suppressed = self._one("SELECT suppressed_rows FROM sqlanon.manifest")[0]
        for name in columns_of(dataset):
            if name != self.age:
                connection.execute(LEAVES.format(name=name, file=DATA / dataset / f"hierarchy_{name}.csv"))

    def _one(self, query: str) -> tuple[float, ...]:
        row = self.connection.execute(query).fetchone()
        assert row is not None
        return row

    def shares(self, question: Question, values: Sequence[tuple[str, str]], complement: bool = False) -> str:
        """A relation of all released rows with the share of each that meets the conditions."""
        low, high = ("NULL" if end is None else str(end) for end in question.ages)
        age_share = "1" if question.ages == (None, None) else f'sqlanon.share("{self.age}", {low}, {high})'
        tables, parts = "release AS r", []
        for i, (name, value) in enumerate(values):
            shares = SHARES.format(name=name).replace("$value", "'" + value.replace("'", "''") + "'")
            tables += f' LEFT JOIN ({shares}) AS s{i} ON r."{name}" = s{i}.label'
            parts.append(f"s{i}.share")
        product = " * ".join(parts) or "1"
        none = " OR ".join(f"{part} = 0" for part in parts) or "FALSE"
        product = f"CASE WHEN {none} THEN 0 ELSE {product} END"
        if complement:
            product = f"1 - ({product})"
        return (
            f'SELECT "{self.age}", CASE WHEN a = 0 OR b = 0 THEN 0 ELSE a * b END AS share '
            f'FROM (SELECT r."{self.age}", {age_share} AS a, {product} AS b FROM {tables})'
        )

    def count(self, question: Question, complement: bool = False) -> tuple[float, float, float]:
        """At least, expected, at most."""
        query = f"""
            SELECT count(*) FILTER (share = 1), avg(share) * (count(*) + {self.suppressed}),
                count(*) FILTER (coalesce(share, 1) > 0) + {self.suppressed}
            FROM ({self.shares(question, question.values, complement)})
        """
        least, expected, most = self._one(query)
        return least, expected, most

    def answer(self, question: Question) -> tuple[float, float, float]:
        if question.average:
            return self.average(question)
        least, expected, most = self.count(question)
        if question.given is None:
            return least, expected, most
        outside = self.count(question, complement=True)
        return least / (least + outside[2]), expected / (expected + outside[1]), most / (most + outside[0])

    def average(self, question: Question) -> tuple[float, float, float]:
        """The average in a group with its bounds: rows that may be in the group count as suppressed ones, with any
        age."""
        group = self.shares(question, question.values)
        (maybe,) = self._one(f"SELECT count(*) FILTER (coalesce(share, 0.5) NOT IN (0, 1)) FROM ({group})")
        self.connection.execute(
            f'CREATE OR REPLACE TEMP VIEW asked AS SELECT "{self.age}" FROM ({group}) WHERE share = 1'
        )
        bounds = f"least := 0, most := 100, suppressed := {self.suppressed + maybe}"
        lower, expected, upper, _ = self._one(f"FROM sqlanon.estimated_average('asked', '{self.age}', {bounds})")
        return lower, expected, upper


@dataclass(frozen=True)
class SetQuestion:
    """A count of rows with one of some values."""

    words: str
    column: str
    values: tuple[str, ...]


SET_QUESTIONS = (
    SetQuestion("in private companies", "workclass", ("Private",)),
    SetQuestion("self-employed", "workclass", ("Self-emp-inc", "Self-emp-not-inc")),
    SetQuestion("in the federal government", "workclass", ("Federal-gov",)),
    SetQuestion("sales", "occupation", ("Sales",)),
    SetQuestion("farming, fishing or protective service", "occupation", ("Farming-fishing", "Protective-serv")),
    SetQuestion("bachelors", "education", ("Bachelors",)),
    SetQuestion("masters or doctorates", "education", ("Masters", "Doctorate")),
    SetQuestion("divorced, separated or widowed", "marital-status", ("Divorced", "Separated", "Widowed")),
    SetQuestion("Asian-Pac-Islander", "race", ("Asian-Pac-Islander",)),
    SetQuestion("from Mexico", "native-country", ("Mexico",)),
)
"""Of Adult, in a release by `mondrian` with sets."""


def values_of(column: str) -> list[str]:
    """The values of a column of Adult, as its hierarchy file lists them."""
    lines = (DATA / "adult" / f"hierarchy_{column}.csv").read_text(encoding="utf-8").splitlines()
    return [line.split(";")[0] for line in lines]


def set_answers(folder: Path) -> Iterator[Answer]:
    """The answers of `sqlanon.estimated_members` to `SET_QUESTIONS`."""
    path = folder / "adult_sets.duckdb"
    with sqlanon.connect() as db:
        db.anonymize(policy("adult", "mondrian")).publish(path)
    with duckdb.connect(path, read_only=True) as connection, duckdb.connect() as source:
        source.execute(f"CREATE TABLE source AS FROM read_csv('{DATA / 'adult' / 'adult'}.csv', delim=';')")
        for question in SET_QUESTIONS:
            query = """
                FROM sqlanon.estimated_members('release', ?, ?, others := ?,
                    suppressed := (SELECT suppressed_rows FROM sqlanon.manifest))
            """
            row = connection.execute(
                query, [question.column, [*question.values], values_of(question.column)]
            ).fetchone()
            count = f'SELECT count(*) FROM source WHERE list_contains(?, "{question.column}")'
            counted = source.execute(count, [list(question.values)]).fetchone()
            assert row is not None and counted is not None
            sure, expected, at_most, _ = row
            yield Answer("adult", "mondrian", question.words, counted[0], sure, expected, at_most)


def set_table(set_answers_: Sequence[Answer]) -> str:
    """The answers to `SET_QUESTIONS`, in Markdown."""
    lines = ["| question on sets | true | expected | error | bounds |", "| --- " + "| ---: " * 4 + "|"]
    for answer in set_answers_:
        error = f"{answer.error:.1%}".replace("%", " %")
        bounds = f"{format_figure(answer.lower)} to {format_figure(answer.upper)}"
        lines.append(
            f"| {answer.question} | {format_figure(answer.truth)} | {format_figure(answer.expected)} "
            f"| {error} | {bounds} |"
        )
    return "\n".join(lines)


def truth(source: duckdb.DuckDBPyConnection, dataset: str, question: Question) -> float:
    age = AGES[dataset]
    low, high = question.ages
    group = [f"\"{name}\" = '{value}'" for name, value in question.values]
    rows = [f'"{age}" >= {low}' if low is not None else "TRUE", f'"{age}" <= {high}' if high is not None else "TRUE"]
    where = " AND ".join([*rows, *group])
    figure = f'avg("{age}")' if question.average else "count(*)"
    row = source.execute(f"SELECT {figure} FROM source WHERE {where}").fetchone()
    assert row is not None
    if question.given is None:
        return float(row[0])
    base = source.execute(f"SELECT count(*) FROM source WHERE {' AND '.join(rows)}").fetchone()
    assert base is not None
    return float(row[0] / base[0])


def answers(dataset: str, strategy: str, folder: Path) -> Iterator[Answer]:
    path = folder / f"{dataset}_{strategy}.duckdb"
    with sqlanon.connect() as db:
        db.anonymize(policy(dataset, strategy)).publish(path)
    with duckdb.connect(path, read_only=True) as connection, duckdb.connect() as source:
        source.execute(f"CREATE TABLE source AS FROM read_csv('{DATA / dataset / dataset}.csv', delim=';')")
        reader = Reader(connection, dataset)
        for question in QUESTIONS[dataset]:
            lower, expected, upper = reader.answer(question)
            yield Answer(dataset, strategy, question.words, truth(source, dataset, question), lower, expected, upper)


def table(results: Sequence[Answer]) -> str:
    lines = ["| question | true | `optimal` | error | bounds | `mondrian` | error | bounds |"]
    lines.append("| --- " + "| ---: " * 7 + "|")
    for optimal in [answer for answer in results if answer.strategy == "optimal"]:
        entry = next(
            two
            for two in results
            if (two.dataset, two.question, two.strategy) == (optimal.dataset, optimal.question, "mondrian")
        )
        cells = [optimal.question, format_figure(optimal.truth)]
        for answer in (optimal, entry):
            cells += [format_figure(answer.expected), f"{answer.error:.1%}".replace("%", " %")]
            cells += [f"{format_figure(answer.lower)} to {format_figure(answer.upper)}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def format_figure(figure: float) -> str:
    """A count in full; an average or a share with one decimal or three.

    >>> format_figure(12639), format_figure(38.44), format_figure(0.336), format_figure(0)
    ('12,639', '38.4', '0.336', '0')
    """
    if figure == int(figure) or figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3f}" if figure < 1 else f"{figure:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=AGES, action="append")
    arguments = parser.parse_args()
    for dataset in arguments.dataset or AGES:
        with tempfile.TemporaryDirectory() as folder:
            results = [answer for strategy in STRATEGIES for answer in answers(dataset, strategy, Path(folder))]
            sets = [*set_answers(Path(folder))] if dataset == "adult" else []
        found_sets = f"{set_table(sets)}\n" if sets else ""
        print(f"{dataset}\n\n{table(results)}\n\n{found_sets}")
        print("bounds hold:", all(answer.holds for answer in (*results, *sets)))


if __name__ == "__main__":
    main()
