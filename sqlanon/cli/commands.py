"""The commands: one thin function each, in the order of the help.

Those that make releases come first, then those that look at a private table before, and at releases after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sqlanon.cli.help import AFTER, BEFORE, MORE, RELEASES, START, Command, Group, ending
from sqlanon.cli.printing import (
    DRAFT,
    print_comparison,
    print_dependencies,
    print_export,
    print_json,
    print_leakage,
    print_live,
    print_matrix,
    print_noise,
    print_requirements,
    print_result,
    print_risk,
    print_suda,
    print_trial,
    print_verification,
)
from sqlanon.errors import AuditError, PolicyError, Problem
from sqlanon.resources import __version__
from sqlanon.terminal import counted, hand_out, printable, say

if TYPE_CHECKING:
    from sqlanon.database import Database
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

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY.toml", help="Path to the policy file.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the policy with a TOML value, such as privacy.k=10. Repeatable.",
    ),
]
Strategy = Annotated[
    str | None, typer.Option("--strategy", metavar="NAME", help="Use another strategy than the policy's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option("--memory-limit", metavar="SIZE", help="Memory to use, such as 2GB. Default: the engine's own limit."),
]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="Threads to use. Default: all cores.")]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        help="SQL dialect of the warehouse: bigquery, databricks, duckdb, postgres, snowflake, spark or trino.",
    ),
]

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
        say(context.get_help())


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


def load(
    path: Path, settings: Sequence[str] | None = None, strategy: str | None = None, output: Path | None = None
) -> Policy:
    """Read a policy, with what the options override in it."""
    from sqlanon.policy.overrides import Overrides, load_overridden

    return load_overridden(path, Overrides(settings or (), strategy, output))


@command(START, "demo", "demo --dir /tmp/demo --rows 10000", refusal="the demo's release does not verify")
def demo(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Folder for its files. Default: sqlanon-demo.")
    ] = Path("sqlanon-demo"),
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="Number of patients. Default: 100000.")
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
            "--force", help="Publish even if the release is not safe beside an earlier one. The catalog records it."
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
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Find the best version of a table that meets the policy, audit it and publish it."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    started = time.perf_counter()
    loaded = load(policy, settings, strategy, output)
    if dry_run:
        _try(loaded, policy, as_json, memory_limit, threads)
        return
    if export is not None or dialect is not None or loaded.source.frequency_set:
        _export(loaded, export, dialect, draft, as_json, memory_limit, threads)
        return
    if loaded.release is None or not loaded.release.has_a_place:
        places = 'database = "release.duckdb", file = "release.parquet", postgres = ... or spark = true'
        message = f"say where the release goes: {places}; or give --output FILE"
        raise PolicyError([Problem("release", message)])
    with connect(memory_limit=memory_limit, threads=threads) as db:
        with shown_progress() as progress:
            result = db.anonymize(loaded, progress)
            progress("write", 0, result.checked, result.score)
            release = result.publish(force=force, draft=draft)
        figures = result.to_dict() | {
            "classes": release.manifest.classes,
            "smallest_class": release.manifest.smallest_class,
            "release": str(release.path),
            "table": release.table,
            "sha256": release.sha256,
            **({"draft": True} if release.manifest.draft else {}),
            "seconds": result.seconds | {"total": time.perf_counter() - started},
        }
        for warning in result.warnings:
            say(f"warning: {warning}", err=True)
        if not as_json:
            print_result(result, release, figures["seconds"]["total"])
        _say_cost(db, result, policy, figures if as_json else None)


def _say_cost(db: Database, result: Result, policy: Path, figures: dict[str, Any] | None) -> None:
    """Say what of the source is not left in a release; with figures, print these and it as JSON."""
    from sqlanon.cli.cost import cost_of
    from sqlanon.cli.progress import shown_progress

    with shown_progress() as progress:
        cost = cost_of(db, result, progress)
    if figures is not None:
        print_json(figures | cost.to_dict())
        return
    for sentence in cost.sentences(policy, result.rows):
        say(sentence)


def _try(loaded: Policy, policy: Path, as_json: bool, memory_limit: str | None, threads: int | None) -> None:
    """Search, and show what would be released."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    started = time.perf_counter()
    with connect(memory_limit=memory_limit, threads=threads) as db:
        with shown_progress() as progress:
            result = db.anonymize(loaded, progress, record=False)
        if result.refusals:
            raise AuditError(result.refusals)
        total = time.perf_counter() - started
        for warning in result.warnings:
            say(f"warning: {warning}", err=True)
        if not as_json:
            print_trial(result, total)
        figures = result.to_dict() | {"dry_run": True, "seconds": result.seconds | {"total": total}}
        _say_cost(db, result, policy, figures if as_json else None)


def _export(
    loaded: Policy,
    export: Path | None,
    dialect: str | None,
    draft: bool,
    as_json: bool,
    memory_limit: str | None,
    threads: int | None,
) -> None:
    """Find the best version of a table in a warehouse, and write what makes its release there."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect
    from sqlanon.warehouse import dialect_of

    if not loaded.source.frequency_set:
        message = "needs [source] frequency_set: leave it out, or name the counts of a table in a warehouse"
        raise PolicyError([Problem("--export" if export is not None else "--dialect", message)])
    if export is None or dialect is None:
        message = (
            "has no rows to publish here: add --export FOLDER --dialect NAME, which writes the release's statements"
        )
        raise PolicyError([Problem("source.frequency_set", message)])
    started, dialect = time.perf_counter(), dialect_of(dialect)
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        result = db.anonymize(loaded, progress)
        folder = result.export(export, dialect, draft)
    total = time.perf_counter() - started
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)
    draft = draft or loaded.is_draft
    if as_json:
        table = "release" if loaded.release is None else loaded.release.table
        marked = {"draft": True} if draft else {}
        more = {"export": str(folder), "table": table, "seconds": result.seconds | {"total": total}, **marked}
        print_json(result.to_dict() | more)
        return
    print_export(result, folder, total)
    if draft:
        say(DRAFT)


@command(RELEASES, "extend policy.toml", refusal="the audit refuses the extended release; the old one stays")
def extend(
    policy: PolicyFile,
    settings: Set = None,
    as_json: AsJson = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Publish even if the release is not safe beside another one. The catalog records it."
        ),
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Add new rows of the source to a release. Rows that were released before stay unchanged."""
    import time

    from sqlanon.database import connect

    started = time.perf_counter()
    with connect(memory_limit=memory_limit, threads=threads) as db:
        found = db.extend(load(policy, settings))
        if found.added_rows:
            found.publish(force=force)
    for warning in found.warnings:
        say(f"warning: {warning}", err=True)
    figures = found.to_dict() | {"release": str(found.path), "table": found.table}
    figures |= {"seconds": {"total": time.perf_counter() - started}}
    if as_json:
        print_json(figures)
        return
    say(f"released before: {counted(found.released_before, 'row')}; new in the source: {found.new_rows:,}")
    say(f"added: {counted(found.added_rows, 'row')}; waiting for more rows like them: {found.waiting_rows:,}")
    if not found.added_rows:
        say("the release is unchanged")
    say(f"{counted(found.classes, 'class')}; the smallest has {counted(found.smallest_class, 'row')}")
    say(f"release: {found.path}, table {found.table}")


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
            say(f"dropped: view {printable(dropped)} and its tables")
        return
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        view = db.live(loaded, name, progress)
    for warning in view.warnings:
        say(f"warning: {warning}", err=True)
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
    from sqlanon.search.compare import SECONDS, endless_of, policies_of

    loaded = load(policy, settings)
    names = None if strategies is None else [name.strip() for name in strategies.split(",")]
    count, seconds = len(policies_of(loaded, names)), SECONDS if names is None else None
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_comparison(count) as progress:
        relation = db.compare(loaded, names, progress, seconds)
        found = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    if as_json:
        print_json(found)
    else:
        print_comparison(found, loaded, policy, endless_of(loaded) if names is None else [])
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
    """Show the stages of `anonymize` and their SQL. Reads no rows."""
    from sqlanon.cli.plan_summary import plan_summary
    from sqlanon.database import connect

    with connect() as db:
        found = db.plan(load(policy, settings, strategy), dialect)
    if sql or dialect is not None:
        hand_out(str(found))
    else:
        say(plan_summary(found, f"sqlanon plan {policy} --sql"))


@command(MORE, "schema > sqlanon.schema.json")
def schema() -> None:
    """Print the JSON Schema of a policy, with which editors complete and check policies."""
    from sqlanon.resources import POLICY_SCHEMA

    hand_out(POLICY_SCHEMA.read_text(encoding="utf-8"))


@command(MORE, "init warehouse.duckdb")
def init(
    database: Annotated[
        Path, typer.Argument(metavar="DATABASE", help="Path to a DuckDB file; created if missing.", show_default=False)
    ],
) -> None:
    """Install the catalog and the macro library in a DuckDB file, in the schema sqlanon."""
    from sqlanon.ledger.catalog import init_database

    init_database(database.absolute())
    say(f"{database.absolute()}: catalog and macro library installed in the schema sqlanon")


@command(MORE, "merge-catalogs", "merge-catalogs policies/")
def merge_catalogs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the policies.", show_default="this one")
    ] = Path(),
) -> None:
    """Merge the catalogs of single policies into the folder's, sqlanon.catalog.duckdb, which all policies use then."""
    from sqlanon.ledger.merging import merge_catalogs

    target, found = merge_catalogs(folder.absolute())
    for one in found:
        say(f"{one.path.name}: {one.releases:,} releases merged; the file is kept as {one.path.name}.merged")
    say(f"{target}: the catalog of this folder" if found else f"{folder.absolute()} has no catalogs to merge")


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
        typer.Option("--suda-size", metavar="M", help="Run --suda with at most M quasi-identifiers at a time."),
    ] = None,
    leakage: Annotated[
        int,
        typer.Option(
            "--leakage", metavar="N", min=0, help="Report the leakage of sets of up to N attributes. Default: 3."
        ),
    ] = 3,
    matrix: Annotated[
        str | None,
        typer.Option("--matrix", metavar="A,B", help="Count the unique rows at each pair of levels of two attributes."),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Measure the re-identification risk of the source as it stands, and what in it breaks the policy."""
    from sqlanon.database import connect

    loaded = load(policy, settings)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        found = db.risk(loaded, numbers("--epsilon", epsilon), leakage)
        uniques = None if matrix is None else db.uniques_matrix(loaded, *two_names("--matrix", matrix))
        special = db.suda(loaded, suda_size) if suda or suda_size is not None else None
    if as_json:
        more = {"matrix": uniques, "suda": special}
        print_json(found.to_dict() | {name: one.to_dict() for name, one in more.items() if one is not None})
        return
    print_risk(found, loaded.noisy)
    print_requirements(found.requirements)
    print_leakage(found.leakage)
    print_dependencies(found.dependencies)
    if uniques is not None:
        print_matrix(uniques)
    if found.noise is not None:
        print_noise(found.noise)
    elif loaded.noisy:
        say("Nothing meets the policy, so the errors of noise are unknown.")
    if special is not None:
        print_suda(special)


@command(START, "suggest hospital.duckdb patients -o policy.toml", "suggest patients.csv -o policy.toml")
def suggest(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A DuckDB file and one of its tables; or data files of one table, or patterns of them.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the policy to FILE instead of printing it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    hierarchies: Annotated[
        Path | None,
        typer.Option("--hierarchies", metavar="DIR", help="Write hierarchies of texts to files in DIR, to be edited."),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Write a commented policy to start from: roles, hierarchies, and the strategy that keeps the most."""
    from sqlanon.cli.files import refuse_existing, write_private
    from sqlanon.database import connect
    from sqlanon.sources.formats import file_kind

    if output is not None:
        refuse_existing(output, force)
        if {output.suffix.lower(), output.resolve().suffix.lower()} != {".toml"}:  # --force never replaces data
            raise PolicyError([Problem(str(output), "a policy is a TOML file: give it a name that ends in .toml")])
    several = len(inputs) > 1 and all(file_kind(one) for one in inputs)
    if not several and len(inputs) > 2:
        raise PolicyError([Problem("suggest", "give a database and one of its tables, or data files of one table")])
    source, table = (None, None) if several else (inputs[0], inputs[1] if len(inputs) > 1 else None)
    folder = None if output is None else output.absolute().parent
    with connect(source, memory_limit=memory_limit, threads=threads) as db:
        text = db.suggest(table, inputs if several else (), folder, hierarchies)
    if output is None:
        hand_out(text)
        return
    write_private(output, text)
    say(f"{output}: a policy to start from. Read it, then run: sqlanon anonymize {output}")


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
    from sqlanon.engines.limits import Limits
    from sqlanon.release.target import place_of

    limits = Limits(memory_limit, threads)
    if policy is None:
        found = place_of(release, table).verify(limits, sha256)
    else:
        from sqlanon.database import connect

        with connect(memory_limit=memory_limit, threads=threads) as db:
            found = db.verify(release, load(policy, settings), table, sha256)
    if as_json:
        print_json(found.to_dict())
    else:
        print_verification(found, policy is None)
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
        int, typer.Option("--known", metavar="M", help="Sensitive values that the attacker can rule out. Default: 1.")
    ] = 1,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements that show the victims, too.")] = False,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Run the published attacks on releases and count the affected rows."""
    from sqlanon import attacks
    from sqlanon.cli.printing import print_attacks

    names = None if only is None else [name.strip() for name in only.split(",")]
    found = attacks.attack(
        releases,
        None if policy is None else load(policy),
        outside,
        names,
        known,
        memory_limit=memory_limit,
        threads=threads,
    )
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
    """Write an HTML page about a release: the policy, whether it holds, and what happened to each column."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    subject = load(Path(of), settings) if of.lower().endswith(".toml") else of
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        holds = db.report(
            subject,
            output,
            private,
            None if policy is None else load(policy, settings),
            None if compare else (),
            progress,
        )
    verdict = "the policy's requirements hold" if holds else "NOT verified"
    say(f"{output.absolute()}: {verdict}")
    if not holds:
        raise typer.Exit(1)
