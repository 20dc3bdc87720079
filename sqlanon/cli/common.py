"""What all commands share: the application, their arguments, and reading a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlanon.errors import PolicyError, Problem
from sqlanon.version import __version__

if TYPE_CHECKING:
    from sqlanon.policy import Policy

app = typer.Typer(
    help="Makes tables safe to share: finds the version that protects everybody and loses the least.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY.toml", help="what is asked", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="what to hold in memory at most, such as 2GB")
]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="how many threads to use at most")]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        help="of the warehouse: bigquery, databricks, duckdb, postgres, snowflake, spark or trino",
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sqlanon {__version__}")
        raise typer.Exit


@app.callback()
def _sqlanon(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Makes tables safe to share."""


def numbers(option: str, given: str | None) -> tuple[float, ...]:
    """Numbers with commas between them, of an option."""
    try:
        return () if given is None else tuple(float(one) for one in given.split(","))
    except ValueError:
        message = f"must be numbers with commas between them, such as 0.1,0.5,1, not {given!r}"
        raise PolicyError([Problem(option, message)]) from None


def two_names(option: str, given: str) -> tuple[str, str]:
    """Two names with a comma between them, of an option."""
    names = [name.strip() for name in given.split(",")]
    if len(names) != 2 or not all(names):
        raise PolicyError([Problem(option, f"must be two attributes with a comma between them, not {given!r}")])
    return names[0], names[1]


def load(path: Path) -> Policy:
    """Read a policy file."""
    from sqlanon.policy import Policy

    return Policy.load(path)
