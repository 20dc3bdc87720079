"""The mistakes that people make in their first hour, as a folder of files, a policy, and a command or Python.

Run as a script, this rewrites `tests/golden/first_hour.txt`: read every answer in the diff aloud before you commit it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

import sqlanon

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.commands import Ended, cli

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "first_hour.txt"

PEOPLE = """name,zip,age,sex,born,illness,cost
Ann Lee,02139,34,F,1988-04-01,flu,120
Bob Ray,02139,36,M,1986-07-12,flu,80
Cat Orr,02141,38,F,1984-01-30,cold,95
Dan Poe,02141,31,M,1991-11-02,cancer,4300
Eve Kim,02138,47,F,1975-05-19,cold,60
Fay Roy,02138,45,F,1977-09-09,flu,75
"""
POLICY = """[source]
files = "people.csv"

[attributes]
name = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20] } }
sex = { role = "quasi", hierarchy = "suppress" }
born = { role = "identifying" }
illness = { role = "sensitive" }
cost = { role = "insensitive" }

[privacy]
k = 2

[release]
database = "release.duckdb"
"""


@dataclass(frozen=True)
class Mistake:
    """What somebody does: with these lines of the policy replaced, after this preparation, this command or Python,
    without a library or an extension of DuckDB."""

    title: str
    lines: tuple[tuple[str, str], ...] = ()
    command: str = "anonymize policy.toml"
    prepare: Callable[[Path], object] = lambda folder: None
    python: str = ""
    without: str = ""


def _line(key: str, new: str) -> tuple[str, str]:
    """A line of the policy that begins with this key, and its replacement."""
    (old,) = (line for line in POLICY.splitlines() if line.startswith((f"{key} =", key + "]", f"[{key}")))
    return old, new


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _earlier(*lines: tuple[str, str]) -> Callable[[Path], object]:
    """A release of the policy with these lines replaced: first.duckdb."""

    def publish(folder: Path) -> None:
        text = POLICY
        for old, new in lines:
            text = text.replace(old, new)
        (folder / "first.toml").write_text(text)
        assert cli("anonymize", "first.toml", "--output", "first.duckdb", cwd=folder).status == 0

    return publish


def _publish(folder: Path) -> None:
    cli("anonymize", "policy.toml", cwd=folder)


def _database(folder: Path) -> None:
    with duckdb.connect(folder / "people.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS age; CREATE TABLE visits AS SELECT 2 AS age")


def _unknown_format(folder: Path) -> None:
    (folder / "people.xyz").write_text(PEOPLE)


FILES = 'files = "people.csv"'
ZIP, AGE, SEX = (next(line for line in POLICY.splitlines() if line.startswith(key)) for key in ("zip", "age", "sex"))
WITH_SETS = ("[release]", '[search]\nstrategy = "mondrian"\nsummary = "set"\nends = "exact"\n\n[release]')
DIVERSITY = "k = 2\n\n[[privacy.l_diversity]]\n"
DISTINCT = DIVERSITY + 'kind = "distinct"\nattribute = '

MISTAKES = [
    # The command line
    Mistake("A command that does not exist", command="anonymise policy.toml"),
    Mistake("No policy", command="anonymize"),
    Mistake("A policy that is not there", command="anonymize polcy.toml"),
    Mistake("A folder instead of a policy", command="anonymize ."),
    Mistake("The data instead of the policy", command="anonymize people.csv"),
    Mistake("An option that does not exist", command="anonymize policy.toml --out release.duckdb"),
    Mistake("A number of threads that is none", command="anonymize policy.toml --threads many"),
    Mistake("Memory without a unit", command="anonymize policy.toml --memory-limit 2"),
    Mistake("No threads", command="anonymize policy.toml --threads 0"),
    Mistake("A setting without a value", command="anonymize policy.toml --set privacy.k"),
    Mistake("A setting of a key that does not exist", command="anonymize policy.toml --set privacy.kk=10"),
    Mistake("A setting without its section", command="anonymize policy.toml --set k=10"),
    Mistake("A setting that is not a number", command="anonymize policy.toml --set privacy.k=many"),
    Mistake("A setting out of its bounds", command="anonymize policy.toml --set search.suppression_limit=5"),
    Mistake(
        "A setting of a column that does not exist", command="anonymize policy.toml --set attributes.agee.weight=2"
    ),
    Mistake(
        "Several settings that are wrong", command="anonymize policy.toml --set privacy.k=0 --set serch.strategy=ola"
    ),
    Mistake("A strategy on the command line that does not exist", command="anonymize policy.toml --strategy best"),
    Mistake(
        "A strategy that does not fit the policy",
        (("k = 2", "k = 2\naverage_risk = 0.2"),),
        command="anonymize policy.toml --strategy mondrian",
    ),
    Mistake("A release as CSV", command="anonymize policy.toml --output release.csv"),
    Mistake("A dialect that does not exist", command="plan policy.toml --dialect oracle"),
    Mistake("An export of rows that are here", command="anonymize policy.toml --export folder --dialect trino"),
    Mistake("A report without a file", command="report policy.toml"),
    Mistake("A report as PDF", command="report policy.toml -o report.pdf"),
    Mistake("A private report of a release", command="report release.duckdb -o report.html --private"),
    Mistake("A comparison in a public report", command="report policy.toml -o report.html --compare"),
    Mistake("A matrix of one column", command="risk policy.toml --matrix zip"),
    Mistake("A matrix of a column that does not exist", command="risk policy.toml --matrix zip,agee"),
    Mistake("An epsilon that is not a number", command="risk policy.toml --epsilon small"),
    Mistake("An epsilon without noise", command="risk policy.toml --epsilon 1"),
    Mistake("A size of no quasi-identifiers", command="risk policy.toml --suda-size 0"),
    Mistake("An attack that does not exist", command="attack release.duckdb --only linkage"),
    Mistake("A SHA-256 that is none", command="verify release.duckdb --sha256 abc", prepare=_publish),
    Mistake("A suggested policy in place of the data", command="suggest people.csv -o people.csv"),
    Mistake("A suggested policy in place of another", command="suggest people.csv -o policy.toml"),
    # Reading the policy
    Mistake("A bracket that is not closed", (_line("attributes", "[attributes"),)),
    Mistake("A text without quotes", ((FILES, "files = people.csv"),)),
    Mistake("A section that does not exist", (("[source]", "[sources]"),)),
    Mistake("A key that does not exist", (("k = 2", "kk = 2"),)),
    Mistake("A number as a text", (("k = 2", 'k = "two"'),)),
    Mistake("A k of one", (("k = 2", "k = 1"),)),
    Mistake("Nothing required", (("k = 2", ""),)),
    Mistake("No role", ((ZIP, 'zip = { hierarchy = { mask = "right" } }'),)),
    Mistake("A role that does not exist", ((SEX, 'sex = { role = "quasi-identifier", hierarchy = "suppress" }'),)),
    Mistake("A quasi-identifier without a hierarchy", ((SEX, 'sex = { role = "quasi" }'),)),
    Mistake(
        "A hierarchy for a column that is released unchanged",
        (_line("cost", 'cost = { role = "insensitive", hierarchy = "suppress" }'),),
    ),
    Mistake("A rule that does not exist", ((AGE, 'age = { role = "quasi", hierarchy = { ranges = [5, 10] } }'),)),
    Mistake("A mask from the middle", ((ZIP, 'zip = { role = "quasi", hierarchy = { mask = "middle" } }'),)),
    Mistake(
        "Widths that do not fit into each other",
        ((AGE, 'age = { role = "quasi", hierarchy = { intervals = [5, 12] } }'),),
    ),
    Mistake(
        "Weeks below months", (_line("born", 'born = { role = "quasi", hierarchy = { dates = ["week", "month"] } }'),)
    ),
    Mistake(
        "No quasi-identifier",
        tuple((line, line.split("=")[0] + '= { role = "insensitive" }') for line in (ZIP, AGE, SEX)),
    ),
    Mistake("A limit in percent", (("[release]", "[search]\nsuppression_limit = 5\n\n[release]"),)),
    Mistake("A strategy that does not exist", (("[release]", '[search]\nstrategy = "best"\n\n[release]'),)),
    Mistake("A measure that does not exist", (("[release]", '[search]\nmeasure = "information"\n\n[release]'),)),
    Mistake("No kind and no l", (("k = 2", DIVERSITY + 'attribute = "illness"'),)),
    Mistake("Diversity of a column that does not exist", (("k = 2", DISTINCT + '"disease"\nl = 2'),)),
    Mistake("Diversity of a quasi-identifier", (("k = 2", DISTINCT + '"sex"\nl = 2'),)),
    Mistake("More diversity than values", (("k = 2", DISTINCT + '"illness"\nl = 9'),)),
    Mistake(
        "Several mistakes at once",
        ((SEX, 'sex = { role = "quasi" }'), ("k = 2", "k = 0"), (FILES, 'files = "people.csv"\nfolder = "x"')),
    ),
    # Nothing meets the policy
    Mistake(
        "Nothing may be generalized",
        command="anonymize policy.toml --set attributes.zip.max_level=0 --set attributes.age.max_level=0",
    ),
    Mistake(
        "Nothing for a local strategy to find",
        command="anonymize policy.toml --strategy mondrian --set privacy.k=7",
    ),
    # The source
    Mistake("A file that is not there", ((FILES, 'files = "persons.csv"'),)),
    Mistake("A pattern that no file matches", ((FILES, 'files = "data/*.parquet"'),)),
    Mistake("A database that is not there", ((FILES, 'database = "people.duckdb"\ntable = "people"'),)),
    Mistake("A table that is not there", ((FILES, 'database = "people.duckdb"\ntable = "person"'),), prepare=_database),
    Mistake("No table", ((FILES, 'database = "people.duckdb"'),), prepare=_database),
    Mistake("A database that is none", ((FILES, 'database = "people.csv"\ntable = "people"'),)),
    Mistake("A file and a database", ((FILES, 'files = "people.csv"\ndatabase = "people.duckdb"\ntable = "people"'),)),
    Mistake("An empty file", prepare=_write("people.csv", "")),
    Mistake("A file with a header and no rows", prepare=_write("people.csv", PEOPLE.splitlines()[0] + "\n")),
    Mistake("A column without a role", ((SEX + "\n", ""),)),
    Mistake("A column misspelled", ((ZIP, ZIP.replace("zip", "zipcode")),)),
    Mistake(
        "A query that fails",
        ((FILES, 'database = "people.duckdb"\nquery = "SELECT agee FROM people"'),),
        prepare=_database,
    ),
    Mistake("Widths for texts", (_line("name", 'name = { role = "quasi", hierarchy = { intervals = [5] } }'),)),
    Mistake("Dates for numbers", ((AGE, 'age = { role = "quasi", hierarchy = { dates = ["month", "year"] } }'),)),
    Mistake("A file of an unknown format", ((FILES, 'files = "people.xyz"'),), prepare=_unknown_format),
    Mistake("Suggest for a file of an unknown format", command="suggest people.xyz", prepare=_unknown_format),
    Mistake(
        "An Excel file that is none", ((FILES, 'files = "people.xlsx"'),), prepare=_write("people.xlsx", "not read")
    ),
    # Hierarchies
    Mistake(
        "A hierarchy file that is not there", ((SEX, 'sex = { role = "quasi", hierarchy = { file = "sex.csv" } }'),)
    ),
    Mistake(
        "A value that is missing from its hierarchy",
        ((SEX, 'sex = { role = "quasi", hierarchy = { file = "sex.csv" } }'),),
        prepare=_write("sex.csv", "F;*\n"),
    ),
    Mistake(
        "A hierarchy that is not a tree",
        ((SEX, 'sex = { role = "quasi", hierarchy = { file = "sex.csv" } }'),),
        prepare=_write("sex.csv", "F;person;*\nM;person;any\n"),
    ),
    Mistake(
        "A hierarchy with lines of different lengths",
        ((SEX, 'sex = { role = "quasi", hierarchy = { file = "sex.csv" } }'),),
        prepare=_write("sex.csv", "F;person;*\nM;*\n"),
    ),
    # The release
    Mistake("No place for the release", (("[release]\n", ""), ('database = "release.duckdb"\n', ""))),
    Mistake("A folder that is not there", (("release.duckdb", "out/release.duckdb"),)),
    Mistake("The source as the place of the release", (('"release.duckdb"', '"people.csv"'),)),
    Mistake("A k above the number of rows", (("k = 2", "k = 7"),)),
    Mistake(
        "A second release that is unsafe together with the first",
        (
            (AGE, 'age = { role = "quasi", hierarchy = "suppress", min_level = 1 }'),
            (SEX, 'sex = { role = "quasi", hierarchy = "suppress", min_level = 1 }'),
        ),
        prepare=_earlier(
            (ZIP, 'zip = { role = "quasi", hierarchy = "suppress", min_level = 1 }'),
            (AGE, 'age = { role = "quasi", hierarchy = { intervals = [20] }, min_level = 1, max_level = 1 }'),
        ),
    ),
    Mistake(
        "A second release with other sets of the same people",
        (WITH_SETS, ("k = 2", "k = 3")),
        prepare=_earlier(WITH_SETS),
    ),
    Mistake(
        "A release as the catalog",
        command="anonymize policy.toml --set catalog.database=first.duckdb",
        prepare=_earlier(),
    ),
    Mistake(
        "The source as the catalog",
        command="anonymize policy.toml --set catalog.database=people.csv",
    ),
    Mistake("Verify a file that is not a release", command="verify people.csv"),
    Mistake("Verify a file that is not there", command="verify relase.duckdb"),
    Mistake("Verify the policy", command="verify policy.toml"),
    Mistake("Suggest for a table that is not there", command="suggest people.duckdb persons", prepare=_database),
    Mistake("Suggest without a table", command="suggest people.duckdb", prepare=_database),
    Mistake("Compare with a strategy that does not exist", command="compare policy.toml --strategies optimal,modrian"),
    Mistake("A report of a file that is not there", command="report relase.duckdb -o report.html"),
    Mistake("A report without its libraries", command="report policy.toml -o report.html", without="altair"),
    # Python
    Mistake("A number instead of a source", python="sqlanon.connect(42)"),
    Mistake("Rows instead of a source", python='sqlanon.connect([{"age": 34}, {"age": 36}])'),
    Mistake("A source that is not there", python='sqlanon.connect("persons.duckdb")'),
    Mistake("A source of an unknown format", prepare=_unknown_format, python='sqlanon.connect("people.xyz")'),
    Mistake("All threads", python='sqlanon.connect("people.csv", threads="all")'),
    Mistake("The path of a policy as the policy", python='sqlanon.Policy("policy.toml")'),
    Mistake("The path of a policy to anonymize", python='sqlanon.connect("people.csv").anonymize("policy.toml")'),
    Mistake("A dictionary to anonymize", python='sqlanon.connect("people.csv").anonymize({"privacy": {"k": 5}})'),
    Mistake("An empty policy", python="sqlanon.Policy()"),
    Mistake("A requirement without its section", python='sqlanon.Policy(attributes={"age": {"role": "quasi"}}, k=5)'),
    Mistake("A role without its key", python='sqlanon.Policy(attributes={"age": "quasi"}, privacy={"k": 5})'),
    Mistake(
        "A name instead of a list of strategies",
        python='sqlanon.connect().compare(sqlanon.Policy.load("policy.toml"), "mondrian")',
    ),
    Mistake(
        "Nowhere to publish",
        (("[release]\n", ""), ('database = "release.duckdb"\n', "")),
        python='sqlanon.connect().anonymize(sqlanon.Policy.load("policy.toml")).publish()',
    ),
    Mistake(
        "A release as CSV, in Python",
        python='sqlanon.connect().anonymize(sqlanon.Policy.load("policy.toml")).publish("anonymous.csv")',
    ),
    Mistake(
        "A result of a database that is closed",
        python=(
            "with sqlanon.connect() as db:\n"
            '    result = db.anonymize(sqlanon.Policy.load("policy.toml"))\n'
            "result.publish()"
        ),
    ),
    Mistake("A policy for a release as CSV", (('"release.duckdb"', '"release.csv"'),)),
    Mistake(
        "A private report of a release, in Python",
        python='sqlanon.connect().report("release.duckdb", "report.html", private=True)',
    ),
]


def make(mistake: Mistake, folder: Path) -> Ended:
    """Make a mistake in a separate folder."""
    (folder / "people.csv").write_text(PEOPLE)
    text = POLICY
    for old, new in mistake.lines:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "policy.toml").write_text(text)
    mistake.prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        if mistake.without:
            patch.setitem(sys.modules, mistake.without, None)
        if not mistake.python:
            return cli(*mistake.command.split(), cwd=folder)
        patch.chdir(folder)
        with pytest.raises((sqlanon.SqlanonError, TypeError)) as raised:
            exec(mistake.python, {"sqlanon": sqlanon})
        return Ended(1, "", f"{raised.type.__name__}: {raised.value}\n")


_DIFFERS = re.compile(r"[0-9a-f]{64}|\d+\.\d\d(?= s$)|\d{4}-\d\d-\d\d \d\d:\d\d", re.MULTILINE)


def answer(mistake: Mistake, ended: Ended, folder: Path) -> str:
    """The text for the golden file: the mistake, and everything that the terminal shows, without times and hashes."""
    lines = [line for _, new in mistake.lines for line in new.splitlines() if line.strip()]
    output = _DIFFERS.sub("...", ended.out + ended.err)
    output = re.sub(rf"{re.escape(duckdb.__version__)}(/\w+)?", "VERSION", output)
    for path in {os.path.realpath(folder), str(folder)}:
        output = output.replace(f"{path}{os.sep}", "").replace(path, ".")
    done = ">>> " + mistake.python.replace("\n", "\n    ... ") if mistake.python else f"$ sqlanon {mistake.command}"
    quoted = "\n".join(f"    {line}".rstrip() for line in [*lines, *[""] * bool(lines), done])
    ending = "" if mistake.python else f"\n(exit {ended.status})\n"
    return f"## {mistake.title}\n\n{quoted}\n\n{output.strip()}\n{ending}"


def approved_answers() -> dict[str, str]:
    """The approved answers, by the title of the mistake."""
    parts = re.split(r"^(?=## )", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.splitlines()[0].removeprefix("## "): part.rstrip() + "\n" for part in parts if part}


if __name__ == "__main__":
    texts = []
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        for mistake in MISTAKES:
            with tempfile.TemporaryDirectory() as folder_name:
                texts.append(answer(mistake, make(mistake, Path(folder_name)), Path(folder_name)))
    GOLDEN.write_text("\n".join(texts), encoding="utf-8")
