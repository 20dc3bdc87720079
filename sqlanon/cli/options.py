"""Arguments and options: how they are declared, those of several commands, and the functions that read their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlanon.engines.limits import MAX_THREADS, Limits
from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError

if TYPE_CHECKING:
    from sqlanon.policy import Policy
    from sqlanon.policy.linked import LinkedPolicy


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def option(declaration: str, help: str, parser: Callable[[str], Any] | None = None) -> Any:
    """An option with its names and the name of its value, such as ``--output -o FILE``; a flag has no value."""
    words = declaration.split()
    names, value = [word for word in words if word.startswith("-")], [word for word in words if word[0] != "-"]
    return typer.Option(*names, metavar=value[0] if value else None, help=help, parser=parser, show_default=False)


def integer(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """A parser of integers in a range."""
    range_ = f"of {lowest:,} or more" if highest is None else f"from {lowest:,} to {highest:,}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if number < lowest or (highest is not None and number > highest):
            raise typer.BadParameter(f"must be an integer {range_}, not {text!r}")
        return number

    return parse


def _parse_size(text: str) -> str:
    try:
        return Limits(text).memory_limit or ""
    except SourceError as error:
        raise typer.BadParameter(str(error).removeprefix("memory_limit: ")) from None


def _parse_dialect(text: str) -> str:
    from sqlanon.warehouse import check_dialect

    try:
        return check_dialect(text)
    except PolicyError as error:
        raise typer.BadParameter(error.problems[0].message) from None


# several commands
PolicyFile = Annotated[Path, argument("POLICY.toml", "Path to the policy file.")]
Settings = Annotated[
    list[str] | None,
    option("--set KEY=VALUE", "Override a key of the policy with a TOML value, such as privacy.k=10. Repeatable."),
]
Csv = Annotated[
    list[str] | None,
    option("--csv KEY=VALUE", "Set the format of CSV files: a key of [source.csv], such as 'delimiter=;'. Repeatable."),
]
Strategy = Annotated[str | None, option("--strategy NAME", "Use another strategy than the policy's.")]
Dialect = Annotated[
    str | None,
    option(
        "--dialect NAME",
        "SQL dialect of the warehouse: bigquery, databricks, duckdb, postgres, snowflake, spark or trino.",
        _parse_dialect,
    ),
]
AsJson = Annotated[bool, option("--json", "Print one JSON object.")]
MemoryLimit = Annotated[
    str | None,
    option("--memory-limit SIZE", "Memory to use, such as 2GB. Default: the engine's own limit.", _parse_size),
]
Threads = Annotated[int | None, option("--threads N", "Threads to use. Default: all cores.", integer(1, MAX_THREADS))]

# demo, import-arx, init
DemoFolder = Annotated[Path, option("--dir FOLDER", "Folder for its files. Default: sqlanon-demo.")]
Patients = Annotated[int, option("--rows N", "Number of patients. Default: 100000.", integer(1))]
ArxProject = Annotated[Path, argument("PROJECT.deid", "A project of ARX.")]
ArxFolder = Annotated[Path | None, option("--dir FOLDER", "A new folder for its files. Default: the project's name.")]
ArxEncoding = Annotated[str | None, option("--encoding NAME", "The encoding of texts that are not in UTF-8.")]
DatabaseFile = Annotated[Path, argument("DATABASE", "Path to a DuckDB file; created if missing.")]

# suggest, inspect
SuggestInputs = Annotated[
    list[str],
    argument(
        "INPUT...",
        "A DuckDB file, and one of its tables unless all are about the same persons; a folder of CSV or Parquet "
        "files of such tables; data files of one table, or patterns of them; an Excel file and a sheet or its range "
        "of cells.",
    ),
]
PersonTable = Annotated[
    str | None,
    option("--person TABLE", "The table with one row for each person, if there are several tables. Default: detected."),
]
PolicyOutput = Annotated[
    Path | None, option("--output -o FILE", "Write the policy to FILE, and its schema next to it.")
]
ReplacePolicy = Annotated[bool, option("--force", "Replace FILE if it exists.")]
HierarchyFolder = Annotated[
    Path | None, option("--hierarchies DIR", "Write hierarchies of texts to files in DIR, to be edited.")
]
InspectFiles = Annotated[
    list[str],
    argument(
        "FILE...", "Data files of one table, or patterns of them; or an Excel file, and a sheet or its range of cells."
    ),
]

# anonymize, extend, withdraw, live
ReleaseFile = Annotated[Path | None, option("--output -o FILE", "Publish to this .duckdb or .parquet file instead.")]
DryRun = Annotated[bool, option("--dry-run", "Search and show the result; publish and record nothing.")]
Force = Annotated[
    bool,
    option(
        "--force", "Publish even if readers who also have another release can single out rows. The catalog records it."
    ),
]
AsDraft = Annotated[bool, option("--draft", "Publish a draft, for testing: no other release is compared with it.")]
ExportFolder = Annotated[
    Path | None,
    option(
        "--export FOLDER",
        "For [source] frequency_set: write the statements and tables that make the release in the warehouse.",
    ),
]
WorkFile = Annotated[
    Path | None,
    option(
        "--keep-work FILE", "Keep the intermediate tables in a new DuckDB file, to query them. It has private values."
    ),
]
DryWithdrawal = Annotated[
    bool, option("--dry-run", "Show what would be withdrawn and what that reveals; publish nothing.")
]
WithdrawalSql = Annotated[bool, option("--sql", "Print the statement that makes the new version, too.")]
ForceWithdrawal = Annotated[
    bool,
    option(
        "--force",
        "Publish even if readers who kept the old version can identify withdrawn persons. The catalog records it.",
    ),
]
ViewName = Annotated[str | None, option("--name VIEW", "Name of the view. Default: the name of the table and _live.")]
DropView = Annotated[bool, option("--drop", "Remove the view instead.")]

# compare, plan
Strategies = Annotated[
    str | None,
    option(
        "--strategies NAME,...",
        "Strategies to compare, however long they take. Default: all that fit the policy, for at most 30 seconds each.",
    ),
]
AsJsonList = Annotated[bool, option("--json", "Print one JSON list with an object for each strategy.")]
PlanSql = Annotated[bool, option("--sql", "Print all statements.")]

# risk
Epsilons = Annotated[
    str | None, option("--epsilon E,...", "For a policy with noise: report the expected errors for these ε.")
]
WithSuda = Annotated[bool, option("--suda", "Search for rows that a few quasi-identifiers make unique (SUDA).")]
SudaSize = Annotated[
    int | None, option("--suda-size M", "Run --suda with at most M quasi-identifiers at a time.", integer(1))
]
LeakageSize = Annotated[
    int | None, option("--leakage N", "Report the leakage of sets of up to N attributes. Default: 3.", integer(0))
]
LeakageSeconds = Annotated[
    int | None,
    option("--leakage-seconds S", "Then measure larger sets for at most S seconds, highest leakage first.", integer(1)),
]
LeakingAttribute = Annotated[
    str | None, option("--values A", "Report what the values of an attribute leak, at each level of its hierarchy.")
]
MatrixAttributes = Annotated[
    str | None,
    option(
        "--matrix A,B",
        "Count the unique rows at each pair of levels of two attributes; with [population], also the combinations "
        "that are unique there.",
    ),
]

# verify, attack, report
ReleaseName = Annotated[
    str, argument("RELEASE", "Path to a release, or the address of one: postgresql://..., sc://... or env:NAME.")
]
VerifyPolicy = Annotated[Path | None, option("--policy POLICY.toml", "Check the release against its source, too.")]
ServerTable = Annotated[str | None, option("--table SCHEMA.NAME", "Name of a release in PostgreSQL or Spark.")]
ServerSchema = Annotated[
    str | None, option("--schema SCHEMA", "Schema of a release of several tables in PostgreSQL or Spark.")
]
Sha256 = Annotated[str | None, option("--sha256 HEX", "SHA-256 that the file must have, as `anonymize` printed it.")]
AttackedReleases = Annotated[list[str], argument("RELEASE...", "Paths to releases of one table.")]
AttackPolicy = Annotated[
    Path | None, option("--policy POLICY.toml", "Policy of the releases: its source and hierarchies.")
]
OutsideTable = Annotated[
    str | None, option("--outside FILE_OR_TABLE", "File or table that names people, to link with the releases.")
]
AttackNames = Annotated[str | None, option("--only ATTACK,...", "Attacks to run. Default: all.")]
KnownValues = Annotated[
    int | None, option("--known M", "Sensitive values that the attacker can rule out. Default: 1.", integer(0))
]
VictimSql = Annotated[bool, option("--sql", "Print the statements that show the victims, too.")]
ReportSubject = Annotated[
    str,
    argument("POLICY.toml|RELEASE", "Path to a release, or to a policy: then the page shows what it would release."),
]
PageFile = Annotated[Path, option("--output -o FILE.html", "Path of the page.")]
PrivateReport = Annotated[
    bool, option("--private", "For a policy: show the source and the search, too. For internal use only.")
]
ReportPolicy = Annotated[
    Path | None, option("--policy POLICY.toml", "For a release: check it against its source, too.")
]
CompareInReport = Annotated[bool, option("--compare", "With --private: compare all strategies that fit the policy.")]


def split_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def parse_numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Parse numbers separated by commas."""
    try:
        return () if text is None else tuple(float(number) for number in text.split(","))
    except ValueError:
        message = f"must be numbers separated by commas, such as 0.1,0.5,1, not {text!r}"
        raise PolicyError([Problem(option, message)]) from None


def parse_two_names(option: str, text: str) -> list[str]:
    """Parse two names separated by a comma."""
    names = split_names(text) or []
    if len(names) != 2 or not all(names):
        raise PolicyError([Problem(option, f"must be two attributes separated by a comma, not {text!r}")])
    return names


@contextmanager
def name_csv_option_in_errors() -> Iterator[None]:
    """Name ``--csv`` in errors that name a key of ``[source.csv]``."""
    try:
        with name_options_in_errors(source__csv="--csv"):
            yield
    except SourceError as error:
        if "[source.csv]" not in str(error):
            raise
        raise SourceError(f"{error} (with this command: --csv KEY=VALUE)") from None


@contextmanager
def name_options_in_errors(**options: str) -> Iterator[None]:
    """Name the options of a command in errors, instead of the arguments and keys that they set."""
    try:
        yield
    except PolicyError as error:
        raise error.with_places({place.replace("__", "."): name for place, name in options.items()}) from None
    except (SourceError, ReleaseError) as error:
        place, colon, message = str(error).partition(": ")
        name = options.get(place.replace(".", "__"))
        if not colon or name is None:
            raise
        kind = SourceError if isinstance(error, SourceError) else ReleaseError
        raise kind(f"{name}: {message}") from None


def load_any_policy(
    path: Path, settings: Sequence[str] | None = None, strategy: str | None = None, output: Path | None = None
) -> Policy | LinkedPolicy:
    """Read a policy of one or several tables and override what the options set."""
    from sqlanon.policy.settings import Overrides, load_overridden

    return load_overridden(path, Overrides(settings or (), strategy, output))


def load_policy(
    path: Path, settings: Sequence[str] | None = None, strategy: str | None = None, output: Path | None = None
) -> Policy:
    """Read a policy of one table and override what the options set."""
    from sqlanon.policy.linked import LinkedPolicy
    from sqlanon.policy.models import several_tables_error

    policy = load_any_policy(path, settings, strategy, output)
    if isinstance(policy, LinkedPolicy):
        raise several_tables_error()
    return policy


def load_linked_policy(path: Path, settings: Sequence[str] | None = None) -> LinkedPolicy:
    """Read a policy of several tables and override what the options set."""
    from sqlanon.errors import PolicyError, Problem
    from sqlanon.policy.linked import LinkedPolicy

    policy = load_any_policy(path, settings)
    if not isinstance(policy, LinkedPolicy):
        raise PolicyError([Problem("--policy", "is of one table, but the release has several: give its own policy")])
    return policy
