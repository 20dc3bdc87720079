"""The options that several commands have: how they are written, checked and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlanon.engines.limits import MOST_THREADS, Limits
from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError

if TYPE_CHECKING:
    from sqlanon.policy import Policy


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers, for an option."""
    range_ = f"of {least:,} or more" if most is None else f"from {least:,} to {most:,}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise typer.BadParameter(f"must be an integer {range_}, not {text!r}")
        return number

    return read


def _size(text: str) -> str:
    try:
        return Limits(text).memory_limit or ""
    except SourceError as error:
        raise typer.BadParameter(str(error).removeprefix("memory_limit: ")) from None


def _dialect(text: str) -> str:
    from sqlanon.warehouse import dialect_of

    try:
        return dialect_of(text)
    except PolicyError as error:
        raise typer.BadParameter(error.problems[0].message) from None


PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY.toml", help="Path to the policy file.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the policy with a TOML value, such as privacy.k=10. Repeatable.",
    ),
]
Csv = Annotated[
    list[str] | None,
    typer.Option(
        "--csv",
        metavar="KEY=VALUE",
        help="Say how CSV files are written: a key of [source.csv], such as 'delimiter=;'. Repeatable.",
    ),
]
Strategy = Annotated[
    str | None, typer.Option("--strategy", metavar="NAME", help="Use another strategy than the policy's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        parser=_size,
        help="Memory to use, such as 2GB. Default: the engine's own limit.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", parser=integer(1, MOST_THREADS), help="Threads to use. Default: all cores."),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        parser=_dialect,
        help="SQL dialect of the warehouse: bigquery, databricks, duckdb, postgres, snowflake, spark or trino.",
    ),
]


def numbers(option: str, given: str | None) -> tuple[float, ...]:
    """Numbers with commas between them, of an option."""
    try:
        return () if given is None else tuple(float(one) for one in given.split(","))
    except ValueError:
        message = f"must be numbers separated by commas, such as 0.1,0.5,1, not {given!r}"
        raise PolicyError([Problem(option, message)]) from None


def two_names(option: str, given: str) -> tuple[str, str]:
    """Two names with a comma between them, of an option."""
    names = [name.strip() for name in given.split(",")]
    if len(names) != 2 or not all(names):
        raise PolicyError([Problem(option, f"must be two attributes separated by a comma, not {given!r}")])
    return names[0], names[1]


@contextmanager
def csv_advice() -> Iterator[None]:
    """Errors that name a key of ``[source.csv]`` say how this command takes it."""
    try:
        with options(source__csv="--csv"):
            yield
    except SourceError as error:
        if "[source.csv]" not in str(error):
            raise
        raise SourceError(f"{error} (with this command: --csv KEY=VALUE)") from None


@contextmanager
def options(**names: str) -> Iterator[None]:
    """Errors name the options of a command instead of the arguments and keys that stand for them."""
    try:
        yield
    except PolicyError as error:
        raise error.with_places({place.replace("__", "."): option for place, option in names.items()}) from None
    except (SourceError, ReleaseError) as error:
        place, colon, message = str(error).partition(": ")
        option = names.get(place.replace(".", "__"))
        if not colon or option is None:
            raise
        kind = SourceError if isinstance(error, SourceError) else ReleaseError
        raise kind(f"{option}: {message}") from None


def load(
    path: Path, settings: Sequence[str] | None = None, strategy: str | None = None, output: Path | None = None
) -> Policy:
    """Read a policy, with what the options override in it."""
    from sqlanon.policy.settings import Overrides, load_overridden

    return load_overridden(path, Overrides(settings or (), strategy, output))
