"""Arguments and options: how they are declared, those of several commands, and the functions that read their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlanon.engines.limits import MOST_THREADS, Limits
from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError

if TYPE_CHECKING:
    from sqlanon.policy import Policy


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
    from sqlanon.warehouse import dialect_of

    try:
        return dialect_of(text)
    except PolicyError as error:
        raise typer.BadParameter(error.problems[0].message) from None


PolicyFile = Annotated[Path, argument("POLICY.toml", "Path to the policy file.")]
Settings = Annotated[
    list[str] | None,
    option("--set KEY=VALUE", "Override a key of the policy with a TOML value, such as privacy.k=10. Repeatable."),
]
Csv = Annotated[
    list[str] | None,
    option(
        "--csv KEY=VALUE", "Say how CSV files are written: a key of [source.csv], such as 'delimiter=;'. Repeatable."
    ),
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
Threads = Annotated[int | None, option("--threads N", "Threads to use. Default: all cores.", integer(1, MOST_THREADS))]


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


def load_policy(
    path: Path, settings: Sequence[str] | None = None, strategy: str | None = None, output: Path | None = None
) -> Policy:
    """Read a policy and override what the options set."""
    from sqlanon.policy.settings import Overrides, load_overridden

    return load_overridden(path, Overrides(settings or (), strategy, output))
