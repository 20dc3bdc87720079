"""The commands: one function each."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sqlanon.cli import options, printing
from sqlanon.cli.help import AFTER, BEFORE, MORE, RELEASES, START, Command, Group, format_epilog
from sqlanon.cli.options import (
    load_any_policy,
    load_linked_policy,
    load_policy,
    name_csv_option_in_errors,
    name_options_in_errors,
)
from sqlanon.errors import AuditError, PolicyError, Problem, SourceError
from sqlanon.support.notices import count_noun
from sqlanon.support.resources import POLICY_SCHEMA, __version__
from sqlanon.support.terminal import make_printable, print_lines, print_sql

if TYPE_CHECKING:
    from sqlanon.database import Database
    from sqlanon.pipeline import StageProgress
    from sqlanon.policy import Policy
    from sqlanon.result import AnyRelease, Result

app = typer.Typer(
    cls=Group,
    help="Makes tables safe to share: finds the version of a table that meets a privacy policy and keeps the most "
    "information.",
    epilog=format_epilog(
        ["sqlanon demo", "sqlanon suggest patients.csv -o policy.toml", "sqlanon anonymize policy.toml"],
        "the job ran, and the answer is no: nothing meets the policy, or a check failed",
        "interrupted (128 + the number of the signal)",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_Function = TypeVar("_Function", bound=Callable[..., None])


def command(panel: str, *examples: str, refusal: str | None = None) -> Callable[[_Function], _Function]:
    """Add a command to a panel of the help, with examples and the meaning of exit status 1."""
    epilog = format_epilog([f"sqlanon {example}" for example in examples], refusal)
    return app.command(cls=Command, rich_help_panel=panel, epilog=epilog)


@contextmanager
def open_database(
    job: str, memory_limit: str | None, threads: int | None, source: str | None = None, time_limit: float | None = None
) -> Iterator[tuple[Database, StageProgress]]:
    """Open a source, and show the progress of a job until the source is closed."""
    from sqlanon.cli.progress import show_progress
    from sqlanon.database import connect

    with (
        connect(source, memory_limit=memory_limit, threads=threads) as db,
        show_progress(job, time_limit=time_limit) as progress,
    ):
        yield db, progress


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sqlanon {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _sqlanon(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print_lines(context.get_help())


@command(START, "demo", "demo --dir /tmp/demo --rows 10000", refusal="the demo's release does not verify")
def demo(directory: options.DemoFolder = Path("sqlanon-demo"), rows: options.Patients = 100_000) -> None:
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
    policy: options.PolicyFile,
    settings: options.Settings = None,
    strategy: options.Strategy = None,
    output: options.ReleaseFile = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    force: options.Force = False,
    draft: options.AsDraft = False,
    export: options.ExportFolder = None,
    dialect: options.Dialect = None,
    keep_work: options.WorkFile = None,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Find the best release of a table that meets the policy, audit it and publish it."""
    from sqlanon.cli.cost import measure_cost, measure_price
    from sqlanon.cli.linked import run_anonymize
    from sqlanon.cli.progress import show_progress
    from sqlanon.database import connect
    from sqlanon.disclosure.residual_risk import describe_narrowing, find_worst
    from sqlanon.engines.limits import Limits
    from sqlanon.policy.linked import LinkedPolicy

    started, loaded = time.perf_counter(), load_any_policy(policy, settings, strategy, output)
    if isinstance(loaded, LinkedPolicy):
        refused = {
            "--force": force,
            "--draft": draft,
            "--export": export,
            "--dialect": dialect,
            "--keep-work": keep_work,
        }
        run_anonymize(loaded, refused, dry_run=dry_run, as_json=as_json, limits=Limits(memory_limit, threads))
        return
    _refuse_output(loaded, export, dialect, dry_run)
    release, worst, price = None, None, None
    with connect(memory_limit=memory_limit, threads=threads) as db:
        with show_progress(time_limit=loaded.search.time_limit) as progress:
            result = db.anonymize(loaded, progress, record=not dry_run, keep_work=keep_work)
            if dry_run and result.refusals:
                raise AuditError(result.refusals)
            if dry_run:
                output_figures: dict[str, Any] = {"dry_run": True}
            elif export is not None and dialect is not None:
                output_figures = _export(result, loaded, export, dialect, draft)
            else:
                progress("write", 0, result.checked, result.score)
                release = result.publish(force=force, draft=draft)
                output_figures = {
                    "classes": release.manifest.classes,
                    "smallest_class": release.manifest.smallest_class,
                    **_release_figures(release),
                    **({"draft": True} if release.manifest.draft else {}),
                }
        seconds = result.seconds | {"total": time.perf_counter() - started}
        _print_warnings(result.warnings)
        if not as_json and release is not None:
            worst = printing.print_result(result, release, seconds["total"])
        elif not as_json:
            printing.print_unpublished(result, output_figures, seconds["total"])
        narrowing = describe_narrowing(result.dependencies, None, loaded.k, result.persons or result.rows)
        worst = find_worst([narrowing] if worst is None else [worst, narrowing])
        with show_progress("reading the result") as progress:
            cost = measure_cost(result, seconds["total"], progress)
            if not as_json:
                price = measure_price(result, worst, seconds["total"], progress)
        if as_json:
            printing.print_json(result.to_dict() | output_figures | {"seconds": seconds} | cost.to_dict())
            return
        for sentence in cost.sentences(policy, result.rows):
            print_lines(sentence)
        printing.print_residual_risk(worst, price)


def _refuse_output(policy: Policy, export: Path | None, dialect: str | None, dry_run: bool) -> None:
    """Refuse a policy and options that do not say where the release goes: to a target, or for a frequency set to an
    export folder, with a dialect."""
    if dry_run:
        return
    release = policy.release
    if policy.source.frequency_set and (export is None or dialect is None):
        message = (
            "has no rows to publish here: add --export FOLDER --dialect NAME, which writes the release's statements"
        )
        raise PolicyError([Problem("source.frequency_set", message)])
    if not policy.source.frequency_set and (export is not None or dialect is not None):
        message = "needs [source] frequency_set: leave it out, or name the counts of a table in a warehouse"
        raise PolicyError([Problem("--export" if export is not None else "--dialect", message)])
    if export is None and (release is None or not release.has_location):
        places = 'database = "release.duckdb", file = "release.parquet", postgres = ... or spark = true'
        message = f"say where the release goes: {places}; or give --output FILE"
        raise PolicyError([Problem("release", message)])


def _export(result: Result, policy: Policy, folder: Path, dialect: str, draft: bool) -> dict[str, Any]:
    """Write the statements of a release in a warehouse; return the folder and the table."""
    section = policy.release
    figures = {"export": str(result.export(folder, dialect, draft))}
    figures |= {"table": "release" if section is None else section.table}
    return figures | ({"draft": True} if draft or policy.is_draft else {})


def _release_figures(release: AnyRelease) -> dict[str, Any]:
    return {"release": str(release.path), "table": release.table, "sha256": release.sha256}


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print_lines(f"warning: {warning}", err=True)


@command(RELEASES, "extend policy.toml", refusal="the audit refuses the extended release; the old one stays")
def extend(
    policy: options.PolicyFile,
    settings: options.Settings = None,
    as_json: options.AsJson = False,
    force: options.Force = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Add new rows of the source to a release. Rows that were released before stay unchanged."""
    started, loaded = time.perf_counter(), load_policy(policy, settings)
    with open_database("extending the release", memory_limit, threads) as (db, _):
        extension = db.extend(loaded)
        if extension.added_rows:
            extension.publish(force=force)
    _print_warnings(extension.warnings)
    if as_json:
        figures = {"release": str(extension.path), "table": extension.table}
        printing.print_json(extension.to_dict() | figures | {"seconds": {"total": time.perf_counter() - started}})
    else:
        printing.print_extension(extension, policy)


@command(
    RELEASES,
    "withdraw policy.toml --dry-run",
    "withdraw policy.toml",
    refusal="the audit refuses the new version, or nothing meets the policy; the old one stays",
)
def withdraw(
    policy: options.PolicyFile,
    settings: options.Settings = None,
    dry_run: options.DryWithdrawal = False,
    sql: options.WithdrawalSql = False,
    as_json: options.AsJson = False,
    force: options.ForceWithdrawal = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Publish a release again without the persons and rows that were deleted from its source since."""
    from sqlanon.cli.progress import show_progress
    from sqlanon.database import connect

    started, loaded = time.perf_counter(), load_policy(policy, settings)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        with show_progress(time_limit=loaded.search.time_limit) as progress:
            withdrawal = db.withdraw(loaded, progress)
            statement = withdrawal.sql() if sql and withdrawal.result is not None else None
            release = None if dry_run or withdrawal.result is None else withdrawal.publish(force=force)
        _print_warnings(withdrawal.warnings)
        if not as_json:
            printing.print_withdrawal(withdrawal, release)
            if statement is not None:
                print_sql(statement)
            return
        figures = withdrawal.to_dict() | {"seconds": {"total": time.perf_counter() - started}}
        figures |= {"dry_run": True} if dry_run else {}
        figures |= {} if release is None else _release_figures(release)
        printing.print_json(figures | ({} if statement is None else {"sql": statement}))


@command(
    RELEASES, "live policy.toml --name patients_live", "live policy.toml --drop", refusal="nothing meets the policy"
)
def live(
    policy: options.PolicyFile,
    settings: options.Settings = None,
    name: options.ViewName = None,
    drop: options.DropView = False,
    as_json: options.AsJson = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Create a view in the source database that generalizes and suppresses whenever it is read."""
    loaded = load_policy(policy, settings)
    if drop:
        with open_database("opening the source", memory_limit, threads) as (db, _):
            dropped_view = db.drop_live(loaded, name)
        if as_json:
            printing.print_json({"dropped": dropped_view})
        else:
            print_lines(f"dropped: view {make_printable(dropped_view)} and its tables")
        return
    limits = memory_limit, threads
    with open_database("opening the source", *limits, time_limit=loaded.search.time_limit) as (db, progress):
        view = db.live(loaded, name, progress)
    _print_warnings(view.warnings)
    if as_json:
        printing.print_json(view.to_dict() | {"database": str(loaded.source.database)})
    else:
        printing.print_live(view, loaded)


@command(
    BEFORE,
    "compare policy.toml",
    "compare policy.toml --strategies optimal,mondrian",
    refusal="none of the strategies meets the policy",
)
def compare(
    policy: options.PolicyFile,
    settings: options.Settings = None,
    strategies: options.Strategies = None,
    as_json: options.AsJsonList = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Compare the results of several strategies. Publishes nothing."""
    from sqlanon.cli.progress import show_comparison
    from sqlanon.database import connect
    from sqlanon.strategies.compare import DEFAULT_SECONDS, find_endless_strategies, policies_by_strategy

    loaded, names = load_policy(policy, settings), options.split_names(strategies)
    with name_options_in_errors(search__strategy="--strategies"):
        count, seconds = len(policies_by_strategy(loaded, names)), DEFAULT_SECONDS if names is None else None
    with connect(memory_limit=memory_limit, threads=threads) as db, show_comparison(count, seconds) as progress:
        comparison = db.compare(loaded, names, progress, seconds)
        rows = [dict(zip(comparison.columns, row, strict=True)) for row in comparison.fetchall()]
    if as_json:
        printing.print_json(rows)
    else:
        printing.print_comparison(rows, loaded, policy, find_endless_strategies(loaded) if names is None else [])
    _print_warnings([] if comparison.undecided_person is None else [comparison.undecided_person])
    if all(row["error"] is not None for row in rows):
        raise typer.Exit(1)


@command(BEFORE, "plan policy.toml", "plan policy.toml --sql", "plan policy.toml --dialect snowflake")
def plan(
    policy: options.PolicyFile,
    settings: options.Settings = None,
    strategy: options.Strategy = None,
    sql: options.PlanSql = False,
    dialect: options.Dialect = None,
) -> None:
    """Show what `anonymize` would do, on one screen; --sql shows its statements. Reads no rows."""
    from sqlanon.cli.linked import refuse_single_table_options
    from sqlanon.cli.plan_summary import format_linked_plan, format_plan
    from sqlanon.database import connect
    from sqlanon.policy.linked import LinkedPolicy

    loaded = load_any_policy(policy, settings, strategy)
    if isinstance(loaded, LinkedPolicy):
        refuse_single_table_options(str(policy), {"--dialect": dialect is not None})
    with connect() as db:
        recorded_plan = db.plan(loaded, dialect)
    _print_warnings(recorded_plan.warnings)
    if sql or dialect is not None:
        print_sql(str(recorded_plan))
        return
    command = f"sqlanon plan {shlex.quote(str(policy))} --sql"
    if isinstance(loaded, LinkedPolicy):
        print_lines(format_linked_plan(loaded, recorded_plan, command))
    else:
        print_lines(format_plan(loaded, recorded_plan, command))


@command(MORE, "schema > sqlanon.schema.json")
def schema() -> None:
    """Print the JSON Schema of a policy, with which editors complete and check policies."""
    print_sql(POLICY_SCHEMA.read_text(encoding="utf-8"))


@command(MORE, "init warehouse.duckdb")
def init(database: options.DatabaseFile) -> None:
    """Install the catalog and the macro library in a DuckDB file, in the schema sqlanon."""
    from sqlanon.ledger.catalog import init_database

    init_database(database.absolute())
    print_lines(f"{database.absolute()}: catalog and macro library installed in the schema sqlanon")


@command(BEFORE, "risk policy.toml", "risk policy.toml --suda --matrix zip,age")
def risk(
    policy: options.PolicyFile,
    settings: options.Settings = None,
    as_json: options.AsJson = False,
    epsilon: options.Epsilons = None,
    suda: options.WithSuda = False,
    suda_size: options.SudaSize = None,
    leakage: options.LeakageSize = None,
    leakage_seconds: options.LeakageSeconds = None,
    values: options.LeakingAttribute = None,
    matrix: options.MatrixAttributes = None,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Measure the re-identification risk of the source as it stands, and the rows that break the policy."""
    from sqlanon.cli.linked import print_linked_risk, refuse_single_table_options
    from sqlanon.policy.linked import LinkedPolicy

    loaded = load_any_policy(policy, settings)
    if isinstance(loaded, LinkedPolicy):
        for_one_table = {
            "--epsilon": epsilon is not None,
            "--suda": suda,
            "--suda-size": suda_size is not None,
            "--leakage": leakage is not None,
            "--leakage-seconds": leakage_seconds is not None,
            "--values": values is not None,
            "--matrix": matrix is not None,
        }
        refuse_single_table_options(str(policy), for_one_table)
        with open_database("measuring the risk", memory_limit, threads) as (db, _):
            print_linked_risk(db.risk(loaded), as_json)
        return
    with open_database("measuring the risk", memory_limit, threads) as (db, _):
        with name_options_in_errors(epsilon="--epsilon"):
            numbers, size = options.parse_numbers("--epsilon", epsilon), 3 if leakage is None else leakage
            assessment = db.risk(loaded, numbers, size, leakage_seconds)
        value_leakage = None if values is None else db.value_leakage(loaded, values)
        uniques = None if matrix is None else db.uniques_matrix(loaded, *options.parse_two_names("--matrix", matrix))
        special_uniques = db.suda(loaded, suda_size) if suda or suda_size is not None else None
    _print_warnings(assessment.warnings)
    if as_json:
        parts = {"matrix": uniques, "suda": special_uniques, "values": value_leakage}
        figures = {name: part.to_dict() for name, part in parts.items() if part is not None}
        printing.print_json(assessment.to_dict() | figures)
        return
    printing.print_risk(assessment, loaded.noisy_attributes)
    _print_warnings([] if assessment.undecided_person is None else [assessment.undecided_person])
    printing.print_requirements(assessment.requirements)
    has_priors = loaded.risk is not None and bool(loaded.risk.priors)
    printing.print_leakage(assessment.leakage, assessment.leakage_search, "rows" if has_priors else assessment.counts)
    if value_leakage is not None:
        printing.print_value_leakage(value_leakage)
    printing.print_dependencies(assessment.dependencies)
    if uniques is not None:
        printing.print_uniques_matrix(uniques)
    if assessment.noise is not None:
        printing.print_noise_errors(assessment.noise)
    elif loaded.noisy_attributes:
        print_lines("Nothing meets the policy, so the errors of noise are unknown.")
    if special_uniques is not None:
        printing.print_suda(special_uniques)


@command(START, "suggest hospital.duckdb patients -o policy.toml", "suggest patients.csv -o policy.toml")
def suggest(
    inputs: options.SuggestInputs,
    output: options.PolicyOutput = None,
    force: options.ReplacePolicy = False,
    csv: options.Csv = None,
    hierarchies: options.HierarchyFolder = None,
    person: options.PersonTable = None,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Write a commented policy to start from: roles, hierarchies, and the strategy that keeps the most."""
    from sqlanon.cli.files import SCHEMA, refuse_existing, write_private, write_schema
    from sqlanon.places.databases import file_kind
    from sqlanon.policy.settings import parse_csv_settings

    if output is not None:
        is_toml = {output.suffix.lower(), output.resolve().suffix.lower()} == {".toml"}
        if not is_toml and not output.is_dir():  # --force never replaces data
            message = f"must end in .toml, as policies do, but {output.name!r} does not"
            raise PolicyError([Problem("--output", message)])
        refuse_existing(output, force)
    is_folder = len(inputs) == 1 and file_kind(inputs[0]) is None and Path(inputs[0]).is_dir()
    are_files = is_folder or (len(inputs) > 1 and all(file_kind(name) for name in inputs))
    if not are_files and len(inputs) > 2:
        raise PolicyError([Problem("suggest", "give a database and one of its tables, or data files of one table")])
    source, table = (None, None) if are_files else (inputs[0], inputs[1] if len(inputs) > 1 else None)
    keys, job = parse_csv_settings(csv or ()), "reading the source and trying strategies on a sample"
    with (
        name_options_in_errors(source__table=Path(inputs[0]).name, person="--person"),
        name_csv_option_in_errors(),
        open_database(job, memory_limit, threads, source) as (db, _),
    ):
        folder = None if output is None else output.absolute().parent
        suggestion = db._suggest(table, inputs if are_files else (), folder, hierarchies, keys, person)
    _print_warnings(suggestion.warnings)
    if output is None:
        print_sql(suggestion.text)
        return
    write_private(output, f"#:schema ./{SCHEMA}\n{suggestion.text}")
    write_schema(output.absolute().with_name(SCHEMA), force)
    for name, reason in suggestion.unreleased.items():
        print_lines(f"not released: {make_printable(name)} ({make_printable(reason)})")
    print_lines(f"{output}: a policy to start from. Read it, then run: sqlanon anonymize {shlex.quote(str(output))}")
    if "--hierarchies" in suggestion.text:  # a comment advises it
        print_lines(
            "Comments name columns that get more levels from files. To write these, add: --hierarchies DIR --force"
        )


@command(START, "inspect patients.csv", "inspect patients.csv --csv skip=2 --csv on_bad_line=drop")
def inspect(
    files: options.InspectFiles,
    csv: options.Csv = None,
    as_json: options.AsJson = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Show how files are read: their format, columns and types, bad lines, and the [source.csv] table for a policy."""
    from sqlanon.cli.inspection import print_inspection
    from sqlanon.places.databases import file_kind
    from sqlanon.policy.settings import parse_csv_settings

    keys = parse_csv_settings(csv or ())
    sheet = files.pop() if len(files) == 2 and file_kind(files[0]) == "excel" and not file_kind(files[1]) else None
    source, paths = (None, files) if len(files) > 1 else (files[0], ())
    with name_csv_option_in_errors(), open_database("reading the files", memory_limit, threads, source) as (db, _):
        inspection = db.inspect(sheet, paths, keys)
    if as_json:
        printing.print_json(inspection.to_dict())
    else:
        print_inspection(inspection)
    if inspection.refusal is not None:
        with name_csv_option_in_errors():
            raise SourceError(inspection.refusal)


@command(START, "import-arx example.deid", "import-arx example.deid --dir adult --encoding windows-1252")
def import_arx(
    project: options.ArxProject, directory: options.ArxFolder = None, encoding: options.ArxEncoding = None
) -> None:
    """Write a project of ARX as a policy, hierarchy files and a CSV file, and list what has no counterpart."""
    from sqlanon.arx import import_project
    from sqlanon.cli.files import SCHEMA, write_schema

    imported = import_project(project, directory or Path(project.stem), encoding)
    write_schema(imported.folder.absolute() / SCHEMA, force=False)
    for heading, notes in (("Not imported:", imported.left_out), ("Decided:", imported.notes)):
        if notes:
            print_lines("\n".join([heading, *(f"- {make_printable(note)}" for note in notes)]))
    policy = imported.folder / imported.policy
    files = count_noun(len(imported.files) - 1, "file")
    print_lines(f"{policy} and {files} next to it. Read it, then run: sqlanon anonymize {shlex.quote(str(policy))}")


@command(
    AFTER,
    "verify release.duckdb",
    "verify release.duckdb --policy policy.toml",
    refusal="a check failed: the release is not what it claims to be",
)
def verify(
    release: options.ReleaseName,
    policy: options.VerifyPolicy = None,
    settings: options.Settings = None,
    table: options.ServerTable = None,
    schema: options.ServerSchema = None,
    sha256: options.Sha256 = None,
    as_json: options.AsJson = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Check that a release is what it claims to be."""
    from sqlanon.cli.linked import find_linked_release, print_linked_verification, refuse_single_table_options
    from sqlanon.cli.progress import show_progress
    from sqlanon.database import connect
    from sqlanon.engines.limits import Limits
    from sqlanon.linked.publish.targets.base import verify_tables
    from sqlanon.publish.targets.base import release_location

    if (location := find_linked_release(release, schema)) is not None:
        refuse_single_table_options(release, {"--table": table, "--sha256": sha256})
        with show_progress("verifying the release"):
            if policy is None:
                linked = verify_tables(location, Limits(memory_limit, threads))
            else:
                with connect(memory_limit=memory_limit, threads=threads) as db:
                    linked = db.verify(release, load_linked_policy(policy, settings), schema)
        if as_json:
            printing.print_json(linked.to_dict())
        else:
            print_linked_verification(linked)
        if not linked.verified:
            raise typer.Exit(1)
        return
    with name_options_in_errors(sha256="--sha256"), show_progress("verifying the release"):
        if policy is None:
            verification = release_location(release, table).verify(Limits(memory_limit, threads), sha256)
        else:
            with connect(memory_limit=memory_limit, threads=threads) as db:
                verification = db.verify(release, load_policy(policy, settings), table, sha256)
    if as_json:
        printing.print_json(verification.to_dict())
    else:
        printing.print_verification(verification, policy)
    if not verification.verified:
        raise typer.Exit(1)


@command(AFTER, "attack release.duckdb --policy policy.toml --sql")
def attack(
    releases: options.AttackedReleases,
    policy: options.AttackPolicy = None,
    outside: options.OutsideTable = None,
    only: options.AttackNames = None,
    known: options.KnownValues = None,
    schema: options.ServerSchema = None,
    sql: options.VictimSql = False,
    as_json: options.AsJson = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Run the published attacks on releases and count the affected rows."""
    from sqlanon import attacks
    from sqlanon.cli.linked import find_linked_release, refuse_single_table_options, run_attack
    from sqlanon.cli.progress import show_progress
    from sqlanon.engines.limits import Limits

    candidates = {release: find_linked_release(release, schema) for release in releases}
    if locations := {release: location for release, location in candidates.items() if location is not None}:
        name = next(iter(locations))
        for_one_table = {
            "RELEASE": len(releases) > 1,
            "--outside": outside,
            "--only": only,
            "--known": known is not None,
        }
        refuse_single_table_options(name, for_one_table)
        limits = Limits(memory_limit, threads)
        run_attack(locations[name], policy, with_sql=sql, as_json=as_json, limits=limits)
        return
    loaded = None if policy is None else load_policy(policy)
    with show_progress("attacking the releases"):
        findings = attacks.attack(
            releases,
            loaded,
            outside,
            options.split_names(only),
            1 if known is None else known,
            memory_limit=memory_limit,
            threads=threads,
        )
    if as_json:
        printing.print_json(findings.to_dict())
    else:
        printing.print_attacks(findings, sql)


@command(
    AFTER,
    "report release.duckdb -o report.html",
    "report policy.toml -o private.html --private",
    refusal="a requirement does not hold, or nothing meets the policy",
)
def report(
    of: options.ReportSubject,
    output: options.PageFile,
    settings: options.Settings = None,
    private: options.PrivateReport = False,
    policy: options.ReportPolicy = None,
    schema: options.ServerSchema = None,
    compare: options.CompareInReport = False,
    memory_limit: options.MemoryLimit = None,
    threads: options.Threads = None,
) -> None:
    """Write an HTML page about a release: its residual risks, and the transformation of each column."""
    from sqlanon.cli.linked import (
        find_linked_release,
        refuse_single_table_options,
        report_policy,
        run_report,
    )
    from sqlanon.engines.limits import Limits
    from sqlanon.policy.linked import LinkedPolicy

    is_policy = of.lower().endswith(".toml")
    if (location := None if is_policy and schema is None else find_linked_release(of, schema)) is not None:
        refused = {"--set": settings, "--private": private, "--policy": policy, "--compare": compare}
        refuse_single_table_options(of, refused)
        if not run_report(location, output, Limits(memory_limit, threads)):
            raise typer.Exit(1)
        return
    subject = load_any_policy(Path(of), settings) if is_policy else of
    if isinstance(subject, LinkedPolicy):
        refuse_single_table_options(of, {"--private": private, "--policy": policy, "--compare": compare})
        report_policy(subject, output, Limits(memory_limit, threads))
        return
    job = "verifying the release" if isinstance(subject, str) else "opening the source"
    with (
        open_database(job, memory_limit, threads) as (db, progress),
        name_options_in_errors(private="--private", compare="--compare", policy="--policy"),
    ):
        source_policy = None if policy is None else load_policy(policy, settings)
        facts = db._write_report(subject, output, private, source_policy, None if compare else (), progress)
    verdict = "the policy's requirements hold" if facts.is_verified else "NOT verified"
    print_lines(f"{output.absolute()}: {verdict}")
    printing.print_residual_risk(facts.worst)
    if not facts.is_verified:
        raise typer.Exit(1)
