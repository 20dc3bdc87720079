"""The commands: one function each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from sqlanon.cli.help import AFTER, BEFORE, MORE, RELEASES, START, Command, Group, ending
from sqlanon.cli.options import (
    AsJson,
    Csv,
    Dialect,
    MemoryLimit,
    PolicyFile,
    Set,
    Strategy,
    Threads,
    csv_advice,
    integer,
    load,
    numbers,
    options,
    two_names,
)
from sqlanon.cli.printing import (
    print_comparison,
    print_dependencies,
    print_export,
    print_json,
    print_leakage,
    print_live,
    print_lost_rows,
    print_matrix,
    print_noise,
    print_requirements,
    print_residual_risk,
    print_result,
    print_risk,
    print_suda,
    print_trial,
    print_values,
    print_verification,
    print_withdrawal,
)
from sqlanon.errors import AuditError, PolicyError, Problem
from sqlanon.support.notices import count_noun
from sqlanon.support.resources import __version__
from sqlanon.support.terminal import make_printable, print_lines, print_sql

if TYPE_CHECKING:
    from sqlanon.disclosure.residual_risk import ResidualRisk
    from sqlanon.pipeline import StageProgress
    from sqlanon.policy import Policy
    from sqlanon.result import Result

app = typer.Typer(
    cls=Group,
    help="Makes tables safe to share: finds the version of a table that meets a privacy policy and keeps the most "
    "information.",
    epilog=ending(
        ["sqlanon demo", "sqlanon suggest patients.csv -o policy.toml", "sqlanon anonymize policy.toml"],
        "the job ran, and the answer is no: nothing meets the policy, or a check failed",
        interrupted=True,
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_Run = TypeVar("_Run", bound=Callable[..., None])


def command(panel: str, *examples: str, refusal: str | None = None) -> Callable[[_Run], _Run]:
    """Add a command to a group of the help, with examples and what its exit status 1 means."""
    shown = [f"sqlanon {example}" for example in examples]
    return app.command(cls=Command, rich_help_panel=panel, epilog=ending(shown, refusal))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sqlanon {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _sqlanon(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print_lines(context.get_help())


@command(START, "demo", "demo --dir /tmp/demo --rows 10000", refusal="the demo's release does not verify")
def demo(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Folder for its files. Default: sqlanon-demo.")
    ] = Path("sqlanon-demo"),
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", parser=integer(1), help="Number of patients. Default: 100000.")
    ] = 100_000,
) -> None:
    """Show the whole story on a generated hospital database."""
    from sqlanon.demo import run_demo

    if not run_demo(directory, rows).verified:
        raise typer.Exit(1)


@command(
    RELEASES,
    "anonymize policy.toml",
    refusal="nothing meets the policy, or the audit refuses the release; nothing is published",
)
def anonymize(
    policy: PolicyFile,
    settings: Set = None,
    strategy: Strategy = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Publish to this .duckdb or .parquet file instead."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Search and show the result; publish and record nothing.")
    ] = False,
    as_json: AsJson = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Publish even if readers of an earlier release, too, can single out rows. The catalog records it.",
        ),
    ] = False,
    draft: Annotated[
        bool, typer.Option("--draft", help="Publish a draft, for trying out: no other release is compared with it.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FOLDER",
            help="For [source] frequency_set: write the statements and tables that make the release in the warehouse.",
        ),
    ] = None,
    dialect: Dialect = None,
    keep_work: Annotated[
        Path | None,
        typer.Option(
            "--keep-work",
            metavar="FILE",
            help="Keep the intermediate tables in a new DuckDB file, to query them. It has private values.",
        ),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Find the best version of a table that meets the policy, audit it and publish it."""
    import time

    from sqlanon.cli.cost import cost_of, price_of
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect
    from sqlanon.disclosure.residual_risk import describe_narrowing, find_worst

    started = time.perf_counter()
    loaded = load(policy, settings, strategy, output)
    if dry_run:
        finish: Finish = _tried
    elif export is not None or dialect is not None or loaded.source.frequency_set:
        finish = partial(_exported, *_in_warehouse(loaded, export, dialect), draft)
    else:
        _refuse_nowhere(loaded)
        finish = partial(_published, force, draft)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        with shown_progress(time_limit=loaded.search.time_limit) as progress:
            result = db.anonymize(loaded, progress, record=not dry_run, keep_work=keep_work)
            more, show = finish(result, progress)
        seconds = result.seconds | {"total": time.perf_counter() - started}
        _warn(result.warnings)
        worst = None if as_json else show(seconds["total"])
        narrowing = describe_narrowing(result.dependencies, None, loaded.privacy.k, result.persons or result.rows)
        risks = [narrowing] if worst is None else [worst, narrowing]
        with shown_progress("reading the result") as progress:
            cost = cost_of(result, seconds["total"], progress)
            worst = find_worst(risks)
            price = None if as_json else price_of(result, worst, seconds["total"], progress)
        if as_json:
            print_json(result.to_dict() | more | {"seconds": seconds} | cost.to_dict())
            return
        for sentence in cost.sentences(policy, result.rows):
            print_lines(sentence)
        print_residual_risk(worst, price)


Finish: TypeAlias = "Callable[[Result, StageProgress], tuple[dict[str, Any], Callable[[float], ResidualRisk | None]]]"
"""What is done with the result of a search: gives figures for JSON, and what prints it, after these seconds."""


def _published(force: bool, draft: bool, result: Result, progress: StageProgress) -> Any:
    progress("write", 0, result.checked, result.score)
    release = result.publish(force=force, draft=draft)
    manifest = release.manifest
    figures = {
        "classes": manifest.classes,
        "smallest_class": manifest.smallest_class,
        "release": str(release.path),
        "table": release.table,
        "sha256": release.sha256,
        **({"draft": True} if manifest.draft else {}),
    }
    return figures, partial(print_result, result, release)


def _tried(result: Result, progress: StageProgress) -> Any:
    if result.refusals:
        raise AuditError(result.refusals)
    return {"dry_run": True}, partial(print_trial, result)


def _exported(folder: Path, dialect: str, draft: bool, result: Result, progress: StageProgress) -> Any:
    release, draft = result.policy.release, draft or result.policy.is_draft
    written = result.export(folder, dialect, draft)
    table = "release" if release is None else release.table
    marked = {"draft": True} if draft else {}
    return {"export": str(written), "table": table, **marked}, partial(print_export, result, written, draft)


def _in_warehouse(policy: Policy, export: Path | None, dialect: str | None) -> tuple[Path, str]:
    """The folder and the dialect of an export, which needs both and a frequency set."""
    if not policy.source.frequency_set:
        message = "needs [source] frequency_set: leave it out, or name the counts of a table in a warehouse"
        raise PolicyError([Problem("--export" if export is not None else "--dialect", message)])
    if export is None or dialect is None:
        message = (
            "has no rows to publish here: add --export FOLDER --dialect NAME, which writes the release's statements"
        )
        raise PolicyError([Problem("source.frequency_set", message)])
    return export, dialect


def _refuse_nowhere(policy: Policy) -> None:
    if policy.release is None or not policy.release.has_location:
        places = 'database = "release.duckdb", file = "release.parquet", postgres = ... or spark = true'
        message = f"say where the release goes: {places}; or give --output FILE"
        raise PolicyError([Problem("release", message)])


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print_lines(f"warning: {warning}", err=True)


@command(RELEASES, "extend policy.toml", refusal="the audit refuses the extended release; the old one stays")
def extend(
    policy: PolicyFile,
    settings: Set = None,
    as_json: AsJson = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Publish even if readers of another release, too, can single out rows. The catalog records it.",
        ),
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Add new rows of the source to a release. Rows that were released before stay unchanged."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    started = time.perf_counter()
    loaded, doing = load(policy, settings), "extending the release"
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress(doing):
        found = db.extend(loaded)
        if found.added_rows:
            found.publish(force=force)
    _warn(found.warnings)
    figures = found.to_dict() | {"release": str(found.path), "table": found.table}
    figures |= {"seconds": {"total": time.perf_counter() - started}}
    if as_json:
        print_json(figures)
        return
    print_lines(f"released before: {count_noun(found.released_before, 'row')}; new in the source: {found.new_rows:,}")
    print_lines(
        f"added: {count_noun(found.added_rows, 'row')}; waiting for more rows like them: {found.waiting_rows:,}"
    )
    print_lost_rows(found.source_change, policy)
    if not found.added_rows:
        print_lines("the release is unchanged")
    fewest = count_noun(found.smallest_class, "row" if found.persons is None else "person")
    print_lines(f"{count_noun(found.classes, 'class')}; the smallest has {fewest}")
    print_lines(f"release: {found.path}, table {found.table}")


@command(
    RELEASES,
    "withdraw policy.toml --dry-run",
    "withdraw policy.toml",
    refusal="the audit refuses the new version, or nothing meets the policy; the old one stays",
)
def withdraw(
    policy: PolicyFile,
    settings: Set = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be withdrawn and what that reveals; publish nothing.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statement that makes the new version, too.")] = False,
    as_json: AsJson = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Publish even if readers who kept the old version can tell who was withdrawn. The catalog records it.",
        ),
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Publish a release again without the persons and rows that were deleted from its source since."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    started = time.perf_counter()
    loaded = load(policy, settings)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        with shown_progress(time_limit=loaded.search.time_limit) as progress:
            withdrawal = db.withdraw(loaded, progress)
            statement = withdrawal.sql() if sql and withdrawal.result is not None else None
            published = None if dry_run or withdrawal.result is None else withdrawal.publish(force=force)
        _warn(withdrawal.warnings)
        figures = withdrawal.to_dict() | {"seconds": {"total": time.perf_counter() - started}}
        figures |= {"dry_run": True} if dry_run else {}
        if published is not None:
            figures |= {"release": str(published.path), "table": published.table, "sha256": published.sha256}
        if statement is not None:
            figures |= {"sql": statement} if as_json else {}
        if as_json:
            print_json(figures)
            return
        print_withdrawal(withdrawal, published)
        if statement is not None:
            print_sql(statement)


@command(
    RELEASES, "live policy.toml --name patients_live", "live policy.toml --drop", refusal="nothing meets the policy"
)
def live(
    policy: PolicyFile,
    settings: Set = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="VIEW", help="Name of the view. Default: the name of the table and _live."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the view instead.")] = False,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Create a view in the private database that generalizes and suppresses whenever it is read."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    loaded = load(policy, settings)
    if drop:
        with connect(memory_limit=memory_limit, threads=threads) as db:
            dropped = db.drop_live(loaded, name)
        if as_json:
            print_json({"dropped": dropped})
        else:
            print_lines(f"dropped: view {make_printable(dropped)} and its tables")
        return
    shown = shown_progress(time_limit=loaded.search.time_limit)
    with connect(memory_limit=memory_limit, threads=threads) as db, shown as progress:
        view = db.live(loaded, name, progress)
    _warn(view.warnings)
    if as_json:
        print_json(view.to_dict() | {"database": str(loaded.source.database)})
        return
    print_live(view, loaded)


@command(
    BEFORE,
    "compare policy.toml",
    "compare policy.toml --strategies optimal,mondrian",
    refusal="none of the strategies meets the policy",
)
def compare(
    policy: PolicyFile,
    settings: Set = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            "--strategies",
            metavar="NAME,...",
            help="Strategies to compare, however long they take. Default: all that fit the policy, for at most 30 "
            "seconds each.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON list with an object for each strategy.")
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Compare the results of several strategies. Publishes nothing."""
    from sqlanon.cli.progress import shown_comparison
    from sqlanon.database import connect
    from sqlanon.strategies.compare import DEFAULT_SECONDS, find_endless_strategies, policies_by_strategy

    loaded = load(policy, settings)
    names = None if strategies is None else [name.strip() for name in strategies.split(",")]
    with options(search__strategy="--strategies"):
        count, seconds = len(policies_by_strategy(loaded, names)), DEFAULT_SECONDS if names is None else None
    shown = shown_comparison(count, seconds)
    with connect(memory_limit=memory_limit, threads=threads) as db, shown as progress:
        relation = db.compare(loaded, names, progress, seconds)
        found = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    if as_json:
        print_json(found)
    else:
        print_comparison(found, loaded, policy, find_endless_strategies(loaded) if names is None else [])
    if relation.undecided_person is not None:
        _warn([relation.undecided_person])
    if all(one["error"] is not None for one in found):
        raise typer.Exit(1)


@command(BEFORE, "plan policy.toml", "plan policy.toml --sql", "plan policy.toml --dialect snowflake")
def plan(
    policy: PolicyFile,
    settings: Set = None,
    strategy: Strategy = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print all statements.")] = False,
    dialect: Dialect = None,
) -> None:
    """Show what `anonymize` would do, on one screen; --sql shows its statements. Reads no rows."""
    from sqlanon.cli.plan_summary import plan_summary
    from sqlanon.database import connect

    loaded = load(policy, settings, strategy)
    with connect() as db:
        found = db.plan(loaded, dialect)
    _warn(found.warnings)
    if sql or dialect is not None:
        print_sql(str(found))
    else:
        print_lines(plan_summary(loaded, found, f"sqlanon plan {shlex.quote(str(policy))} --sql"))


@command(MORE, "schema > sqlanon.schema.json")
def schema() -> None:
    """Print the JSON Schema of a policy, with which editors complete and check policies."""
    from sqlanon.support.resources import POLICY_SCHEMA

    print_sql(POLICY_SCHEMA.read_text(encoding="utf-8"))


@command(MORE, "init warehouse.duckdb")
def init(
    database: Annotated[
        Path, typer.Argument(metavar="DATABASE", help="Path to a DuckDB file; created if missing.", show_default=False)
    ],
) -> None:
    """Install the catalog and the macro library in a DuckDB file, in the schema sqlanon."""
    from sqlanon.ledger.catalog import init_database

    init_database(database.absolute())
    print_lines(f"{database.absolute()}: catalog and macro library installed in the schema sqlanon")


@command(BEFORE, "risk policy.toml", "risk policy.toml --suda --matrix zip,age")
def risk(
    policy: PolicyFile,
    settings: Set = None,
    as_json: AsJson = False,
    epsilon: Annotated[
        str | None,
        typer.Option(
            "--epsilon", metavar="E,...", help="For a policy with noise: report the expected errors for these ε."
        ),
    ] = None,
    suda: Annotated[
        bool, typer.Option("--suda", help="Search for rows that a few quasi-identifiers make unique (SUDA).")
    ] = False,
    suda_size: Annotated[
        int | None,
        typer.Option(
            "--suda-size", metavar="M", parser=integer(1), help="Run --suda with at most M quasi-identifiers at a time."
        ),
    ] = None,
    leakage: Annotated[
        int,
        typer.Option(
            "--leakage",
            metavar="N",
            parser=integer(0),
            help="Report the leakage of sets of up to N attributes. Default: 3.",
        ),
    ] = 3,
    leakage_seconds: Annotated[
        int | None,
        typer.Option(
            "--leakage-seconds",
            metavar="S",
            parser=integer(1),
            help="Then measure larger sets for at most S seconds, highest leakage first.",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            "--values", metavar="A", help="Report what the values of an attribute leak, at each level of its hierarchy."
        ),
    ] = None,
    matrix: Annotated[
        str | None,
        typer.Option(
            "--matrix",
            metavar="A,B",
            help="Count the unique rows at each pair of levels of two attributes; with [population], also "
            "the combinations that are unique there.",
        ),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Measure the re-identification risk of the source as it stands, and what in it breaks the policy."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    loaded, shown = load(policy, settings), shown_progress("measuring the risk")
    with connect(memory_limit=memory_limit, threads=threads) as db, shown:
        with options(epsilon="--epsilon"):
            found = db.risk(loaded, numbers("--epsilon", epsilon), leakage, leakage_seconds)
        of_values = None if values is None else db.value_leakage(loaded, values)
        uniques = None if matrix is None else db.uniques_matrix(loaded, *two_names("--matrix", matrix))
        special = db.suda(loaded, suda_size) if suda or suda_size is not None else None
    _warn(found.warnings)
    if as_json:
        more = {"matrix": uniques, "suda": special, "values": of_values}
        print_json(found.to_dict() | {name: one.to_dict() for name, one in more.items() if one is not None})
        return
    print_risk(found, loaded.noisy_attributes)
    if found.undecided_person is not None:
        _warn([found.undecided_person])
    print_requirements(found.requirements)
    has_priors = loaded.risk is not None and bool(loaded.risk.priors)
    print_leakage(found.leakage, found.leakage_search, "rows" if has_priors else found.counts)
    if of_values is not None:
        print_values(of_values)
    print_dependencies(found.dependencies)
    if uniques is not None:
        print_matrix(uniques)
    if found.noise is not None:
        print_noise(found.noise)
    elif loaded.noisy_attributes:
        print_lines("Nothing meets the policy, so the errors of noise are unknown.")
    if special is not None:
        print_suda(special)


@command(START, "suggest hospital.duckdb patients -o policy.toml", "suggest patients.csv -o policy.toml")
def suggest(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A DuckDB file and one of its tables; data files of one table, or patterns of them; an Excel file and "
            "a sheet or its range of cells.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the policy to FILE, its schema beside it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    csv: Csv = None,
    hierarchies: Annotated[
        Path | None,
        typer.Option("--hierarchies", metavar="DIR", help="Write hierarchies of texts to files in DIR, to be edited."),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Write a commented policy to start from: roles, hierarchies, and the strategy that keeps the most."""
    from sqlanon.cli.files import SCHEMA, refuse_existing, write_private, write_schema
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect, suggest_policy
    from sqlanon.policy.settings import parse_csv_settings
    from sqlanon.sources.formats import file_kind

    if output is not None:
        is_toml = {output.suffix.lower(), output.resolve().suffix.lower()} == {".toml"}
        if not is_toml and not output.is_dir():  # --force never replaces data
            message = f"must end in .toml, as policies do, and {output.name!r} does not"
            raise PolicyError([Problem("--output", message)])
        refuse_existing(output, force)
    several = len(inputs) > 1 and all(file_kind(one) for one in inputs)
    if not several and len(inputs) > 2:
        raise PolicyError([Problem("suggest", "give a database and one of its tables, or data files of one table")])
    source, table = (None, None) if several else (inputs[0], inputs[1] if len(inputs) > 1 else None)
    folder = None if output is None else output.absolute().parent
    of, keys = Path(inputs[0]).name, parse_csv_settings(csv or ())
    shown, named = shown_progress("reading the source and trying strategies on a sample"), options(source__table=of)
    with named, csv_advice(), connect(source, memory_limit=memory_limit, threads=threads) as db, shown:
        suggestion = suggest_policy(db, table, inputs if several else (), folder, hierarchies, keys)
    text = suggestion.text
    _warn(suggestion.warnings)
    if output is None:
        print_sql(text)
        return
    write_private(output, f"#:schema ./{SCHEMA}\n{text}")
    for line in write_schema(output.absolute().with_name(SCHEMA), force):
        print_lines(line)
    for name, reason in suggestion.unreleased.items():
        print_lines(f"not released: {make_printable(name)} ({make_printable(reason)})")
    print_lines(f"{output}: a policy to start from. Read it, then run: sqlanon anonymize {shlex.quote(str(output))}")
    if "--hierarchies" in text:  # a comment advises it
        print_lines(
            "Some columns hold numbers among words such as NA. For round widths, add: --hierarchies DIR --force"
        )


@command(START, "inspect patients.csv", "inspect patients.csv --csv skip=2 --csv on_bad_line=drop")
def inspect(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Data files of one table, or patterns of them; or an Excel file, and a sheet or its range of cells.",
            show_default=False,
        ),
    ],
    csv: Csv = None,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Show how files are read: their form, columns and types, bad lines, and the [source.csv] table for a policy."""
    from sqlanon.cli.inspection import print_inspection
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect
    from sqlanon.errors import SourceError
    from sqlanon.policy.settings import parse_csv_settings
    from sqlanon.sources.formats import file_kind

    keys = parse_csv_settings(csv or ())
    sheet = files.pop() if len(files) == 2 and file_kind(files[0]) == "excel" and not file_kind(files[1]) else None
    source, several = (None, files) if len(files) > 1 else (files[0], ())
    shown = shown_progress("reading the files")
    with csv_advice(), connect(source, memory_limit=memory_limit, threads=threads) as db, shown:
        found = db.inspect(sheet, several, keys)
    if as_json:
        print_json(found.to_dict())
    else:
        print_inspection(found)
    if found.refusal is not None:
        with csv_advice():
            raise SourceError(found.refusal)


@command(START, "import-arx example.deid", "import-arx example.deid --dir adult --encoding windows-1252")
def import_arx(
    project: Annotated[Path, typer.Argument(metavar="PROJECT.deid", help="A project of ARX.", show_default=False)],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="FOLDER", help="A new folder for its files. Default: the project's name."),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", metavar="NAME", help="The encoding of texts that are not in UTF-8."),
    ] = None,
) -> None:
    """Write a project of ARX as a policy, hierarchy files and a CSV file, and say what has no counterpart."""
    from sqlanon.arx import import_project
    from sqlanon.cli.files import SCHEMA, write_schema

    imported = import_project(project, directory or Path(project.stem), encoding)
    for line in write_schema(imported.folder.absolute() / SCHEMA, force=False):
        print_lines(line)
    for heading, lines in (("Not imported:", imported.left_out), ("Decided:", imported.notes)):
        print_lines("\n".join([heading, *(f"- {make_printable(line)}" for line in lines)])) if lines else None
    policy = imported.folder / imported.policy
    others = count_noun(len(imported.files) - 1, "file")
    print_lines(f"{policy} and {others} beside it. Read it, then run: sqlanon anonymize {shlex.quote(str(policy))}")


@command(
    AFTER,
    "verify release.duckdb",
    "verify release.duckdb --policy policy.toml",
    refusal="a check failed: the release is not what it claims to be",
)
def verify(
    release: Annotated[
        str,
        typer.Argument(
            metavar="RELEASE",
            help="Path to a release, or the address of one: postgresql://..., sc://... or env:NAME.",
            show_default=False,
        ),
    ],
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="POLICY.toml", help="Check the release against its source, too.")
    ] = None,
    settings: Set = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="SCHEMA.NAME", help="Name of a release in PostgreSQL or Spark.")
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option("--sha256", metavar="HEX", help="SHA-256 that the file must have, as `anonymize` printed it."),
    ] = None,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Check that a release is what it claims to be."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.engines.limits import Limits
    from sqlanon.release.targets.base import release_location

    limits = Limits(memory_limit, threads)
    with options(sha256="--sha256"), shown_progress("verifying the release"):
        if policy is None:
            found = release_location(release, table).verify(limits, sha256)
        else:
            from sqlanon.database import connect

            with connect(memory_limit=memory_limit, threads=threads) as db:
                found = db.verify(release, load(policy, settings), table, sha256)
    if as_json:
        print_json(found.to_dict())
    else:
        print_verification(found, policy)
    if not found.verified:
        raise typer.Exit(1)


@command(AFTER, "attack release.duckdb --policy policy.toml --sql")
def attack(
    releases: Annotated[
        list[str], typer.Argument(metavar="RELEASE...", help="Paths to releases of one table.", show_default=False)
    ],
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="POLICY.toml", help="Policy of the releases: its source and hierarchies."),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            "--outside", metavar="FILE_OR_TABLE", help="File or table that names people, to link with the releases."
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="ATTACK,...", help="Attacks to run. Default: all.")
    ] = None,
    known: Annotated[
        int,
        typer.Option(
            "--known",
            metavar="M",
            parser=integer(0),
            help="Sensitive values that the attacker can rule out. Default: 1.",
        ),
    ] = 1,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements that show the victims, too.")] = False,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Run the published attacks on releases and count the affected rows."""
    from sqlanon import attacks
    from sqlanon.cli.printing import print_attacks
    from sqlanon.cli.progress import shown_progress

    names = None if only is None else [name.strip() for name in only.split(",")]
    loaded = None if policy is None else load(policy)
    with shown_progress("attacking the releases"):
        found = attacks.attack(releases, loaded, outside, names, known, memory_limit=memory_limit, threads=threads)
    if as_json:
        print_json(found.to_dict())
    else:
        print_attacks(found, sql)


@command(
    AFTER,
    "report release.duckdb -o report.html",
    "report policy.toml -o private.html --private",
    refusal="a requirement does not hold, or nothing meets the policy",
)
def report(
    of: Annotated[
        str,
        typer.Argument(
            metavar="POLICY.toml|RELEASE",
            help="Path to a release, or to a policy: then the page shows what it would release.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Path of the page.", show_default=False)
    ],
    settings: Set = None,
    private: Annotated[
        bool,
        typer.Option("--private", help="For a policy: show the source and the search, too. For internal use only."),
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="POLICY.toml", help="For a release: check it against its source, too."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="With --private: compare all strategies that fit the policy.")
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Write an HTML page about a release: what could still go wrong, and what happened to each column."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect, write_report

    subject = load(Path(of), settings) if of.lower().endswith(".toml") else of
    named = options(private="--private", compare="--compare", policy="--policy")
    shown = shown_progress("verifying the release" if isinstance(subject, str) else "opening the source")
    with connect(memory_limit=memory_limit, threads=threads) as db, shown as progress, named:
        found = write_report(
            db,
            subject,
            output,
            private,
            None if policy is None else load(policy, settings),
            None if compare else (),
            progress,
        )
    verdict = "the policy's requirements hold" if found.holds else "NOT verified"
    print_lines(f"{output.absolute()}: {verdict}")
    print_residual_risk(found.worst)
    if not found.holds:
        raise typer.Exit(1)
