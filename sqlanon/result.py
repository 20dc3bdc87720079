"""The result of a search, ready to be published, and the comparison of strategies."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from sqlglot import Dialect, exp

from sqlanon import pipeline
from sqlanon.engines.dialects.translation import DIALECTS, translate_query
from sqlanon.engines.dialects.variables import without_variables
from sqlanon.errors import ReleaseError, SourceError
from sqlanon.places.addresses import format_location
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.publish.published import Release, pandas_frame, polars_frame
from sqlanon.publish.targets.base import Reach
from sqlanon.release.manifest import utc_now
from sqlanon.release.sentences import level_in_words
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.support.expressions import release_order, select_star, subquery
from sqlanon.support.markup import html_table
from sqlanon.support.notices import sort_messages

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

    from sqlanon.publish.targets.server import ServerRelease
    from sqlanon.report import UnpublishedResult
    from sqlanon.report.facts import ReportFacts
    from sqlanon.report.notebook import Charts


AnyRelease: TypeAlias = "Release | ServerRelease"

SEVERAL_LEVELS = "at several levels"
"""The transformation of an attribute whose values are released at several levels."""


class Result:
    """The best generalization of a table that a search found. `publish` writes it as a release.

    Attributes
    ----------
    generalization, heights:
        By quasi-identifier, in the policy's order: its level, None if values are released at several levels; and the
        height of its hierarchy.
    measure, score:
        The measure that was minimised (``distinct``: maximised), and its value.
    optimal:
        Whether it is proven that no full-domain generalization that meets the policy is better.
    bound:
        A proven limit: no generalization that meets the policy scores less (``distinct``: more). If optimal, the score.
    rows, suppressed_rows, released_rows:
        Rows of the source, suppressed or masked rows, and rows of the release.
    persons, suppressed_persons, released_persons, partly_released_persons:
        With ``[source] person``, otherwise None: persons of the source; persons with a suppressed row; persons with all
        their rows in the release; and suppressed persons with another row in the release.
    classes:
        Number of equivalence classes in the release.
    smallest_class, smallest_class_rows:
        Persons of the class with fewest, or rows if rows are counted; and rows of the class with fewest rows.
    nodes, checked:
        Generalizations of the lattice, and those that were checked; rounds, with a local strategy.
    null_map, wrong_map:
        With a population: kept rows that match nobody in it, and kept rows that match only other people in it (None if
        the two tables do not identify persons); otherwise None.
    k_minimal:
        All k-minimal generalizations, with a strategy that finds them; otherwise None.
    satisfying:
        All generalizations that meet the policy, with the strategy ``incognito``; otherwise None.
    epsilon:
        The ε of a record, for all its attributes with noise together. Without noise, this and the next four are None.
    noise:
        By attribute with noise, over all records with noise: ``epsilon``; ``expected_relative_error`` and
        ``expected_error`` (in the units of the attribute; for dates in days), in closed form;
        ``observed_relative_error`` and ``observed_error`` of the drawn noise; and ``zero_rows``, which have no relative
        error.
    linking_risk, linking_risk_strict:
        The share of the released records whose own original is the nearest in its class; strict: the only nearest.
    confidence:
        With ``[privacy] confidence``: ``beta``, and ``suppressed_rows``, which are among the suppressed rows.
    decoys:
        With ``[release] decoys``: ``rows``, ``classes`` that they fill, and ``smallest_class_without`` them; otherwise
        None. ``released_rows``, ``classes`` and ``smallest_class`` include decoys; ``suppressed_rows`` and ``score``
        count real rows only. ``optimal``, ``bound`` and ``gap`` are about ``score_without_decoys``.
    dropped_lines:
        With ``[source.csv] on_bad_line = "drop"``: the number of dropped lines; otherwise None.
    held_against:
        Once published: the earlier releases of the ledger that the release was compared with, by path or address.
    dependencies:
        The released columns that narrow a generalized quasi-identifier, with figures: see
        docs/explanation/dependencies.md.
    warnings:
        Warnings to read before the release is shared.
    seconds:
        Time by stage: ``load``, ``search``, ``noise`` if there is any; ``publish`` once that is done.
    """

    def __init__(self, draft: ReleaseDraft) -> None:
        search_input, search_result, recoding = draft.search_input, draft.result, draft.recoding
        noise, decoys = draft.noise, draft.decoys
        reported_score, by_name = policy_measure(search_input).reported_score, search_input.lattice.level_by_attribute
        self._run, self._search_input, self._draft = draft.run, search_input, draft
        self._recorded = False
        self.run_id = uuid4().hex
        self.started_at = utc_now()
        self.policy = search_input.policy
        self.generalization: Mapping[str, int | None] = dict(recoding.generalization)
        self.heights = search_input.heights
        self.measure = self.policy.search.measure
        self.score = reported_score(draft.score)
        self.score_without_decoys = None if decoys is None else reported_score(search_result.score)
        self.optimal, self.bound = search_result.optimal, reported_score(search_result.bound)
        self.rows = search_input.marginals.rows
        self.suppressed_rows = recoding.figures.suppressed_rows
        self.released_rows = draft.expected_figures.rows
        self.classes = recoding.figures.classes
        self.smallest_class = self.smallest_class_rows = recoding.smallest_class
        self.persons = self.released_persons = self.suppressed_persons = self.partly_released_persons = None
        if (persons := recoding.persons) is not None:
            self.persons, self.released_persons = persons.persons, persons.fully_released
            self.suppressed_persons, self.partly_released_persons = persons.suppressed, persons.partly_released
            self.smallest_class = persons.smallest_class
        self.null_map = None if recoding.population_match is None else recoding.population_match.null_map
        self.wrong_map = None if recoding.population_match is None else recoding.population_match.wrong_map
        self.nodes, self.checked = search_input.lattice.size, search_result.checked
        minimal, satisfying = search_result.minimal, search_result.satisfying
        self.k_minimal = None if minimal is None else [by_name(levels) for levels in minimal]
        self.satisfying = None if satisfying is None else [by_name(levels) for levels in satisfying]
        self.epsilon = self.policy.epsilon
        self.noise = None if noise is None else {name: dict(errors) for name, errors in noise.attributes.items()}
        self.linking_risk = None if noise is None else noise.linking.risk
        self.linking_risk_strict = None if noise is None else noise.linking.strict_risk
        self.confidence = None if noise is None else noise.confidence
        self.decoys = None if decoys is None else decoys.decoys
        self.dropped_lines = draft.run.dropped_lines(self.policy)
        self.held_against: tuple[str, ...] = ()
        self.dependencies = draft.dependencies.narrowing
        self.warnings = sort_messages(draft.warnings)
        self.seconds = draft.seconds

    @property
    def gap(self) -> float:
        """The largest possible distance of the score from the best one, as a share: |score − bound| / |score|."""
        score = self.score if self.score_without_decoys is None else self.score_without_decoys
        return abs(score - self.bound) / abs(score) if score != self.bound else 0.0

    @property
    def proof(self) -> str:
        """Description of the proof, such as ``optimal among full-domain generalizations``."""
        before_decoys = ", before decoys" if self.decoys is not None and self.decoys.rows else ""
        if self.optimal:
            return f"optimal among full-domain generalizations{before_decoys}"
        if self.policy.search.is_local and 0 < self.bound < self.score:
            factor = math.ceil(100 * self.score / self.bound) / 100  # rounded up, so that it is true
            return f"not proven optimal: at most {factor:,g} times the least {self.measure} (proven)"
        if self.policy.search.is_local:  # there is no bound for all recodings
            return f"not proven optimal ({self.policy.search.strategy} gives no proof)"
        percent = math.ceil(1000 * self.gap) / 10  # rounded up, so that it is true
        return f"not proven optimal: within {percent:g} % of the best full-domain generalization{before_decoys}"

    @property
    def transformations(self) -> dict[str, str]:
        """The transformation of each quasi-identifier, in a few words, such as ``level 2 of 3: by year``."""
        transformations = {}
        for name in self.policy.quasi_identifiers:
            if self.noise is not None and name in self.noise:
                transformations[name] = f"noise, ε = {self.noise[name]['epsilon']:g}"
            elif (level := self.generalization.get(name)) is None:
                transformations[name] = SEVERAL_LEVELS
            else:
                rules = [rule.redact() for rule in self.policy.attributes[name].hierarchy or ()]
                transformations[name] = level_in_words(rules, level, self.heights.get(name)).partition("; ")[0]
        return transformations

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        figures = self._select("rows", "released_rows", "suppressed_rows")
        if self.persons is not None:
            figures |= self._select("persons", "released_persons", "suppressed_persons", "partly_released_persons")
            figures |= self._select("smallest_class_rows")
        figures |= self._select("classes", "smallest_class", "generalization", "measure", "score")
        figures["lattice"] = self._select("nodes", "checked")
        figures |= self._select("optimal", "bound", "gap")
        figures["held_against"] = list(self.held_against)
        figures["dependencies"] = [narrowing.to_dict() for narrowing in self.dependencies]
        figures["warnings"] = list(self.warnings)
        optional = self._select("dropped_lines", "null_map", "wrong_map", "k_minimal")
        figures |= {name: value for name, value in optional.items() if value is not None}
        if self.satisfying is not None:
            figures["satisfying"] = len(self.satisfying)
        if self._draft.noise is not None:
            figures |= self._select("epsilon", "noise", "linking_risk", "linking_risk_strict")
            linking = self._draft.noise.linking
            figures |= {} if linking.all_records else {"linking_rows": linking.records}
            figures |= {} if self.confidence is None else {"confidence": self.confidence}
        if self.decoys is not None:
            figures |= {"decoys": self.decoys.to_dict(), "score_without_decoys": self.score_without_decoys}
        return figures

    def _select(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _repr_html_(self) -> str:
        """Render the figures for notebooks; no statement runs."""
        rows = [
            *self.transformations.items(),
            (f"score ({self.measure})", f"{self.score:.6g}, {self.proof}"),
            ("rows", f"{self.released_rows:,} of {self.rows:,} released, {self.suppressed_rows:,} suppressed"),
            ("classes", f"{self.classes:,}, the smallest of {self.smallest_class:,} rows"),
        ]
        return html_table("What would be released", ["", ""], rows)

    def __repr__(self) -> str:
        return (
            f"Result(generalization={self.generalization}, {self.measure}={self.score:.6g}, "
            f"suppressed_rows={self.suppressed_rows}, classes={self.classes}, optimal={self.optimal})"
        )

    def record(self) -> None:
        """Record the run in the policy's catalog, if there is one."""
        if self.policy.catalog is None or self._recorded:
            return
        self._recorded = True
        from sqlanon.ledger.catalog import build_run_record, record_run

        figures = self._select(
            *("run_id", "started_at", "measure", "rows", "suppressed_rows", "persons", "suppressed_persons"),
            *("classes", "score", "optimal", "nodes", "checked"),
        )
        figures |= {"strategy": self.policy.search.strategy, "seconds": sum(self.seconds.values())}
        run_record = build_run_record(self.policy, self.generalization, **figures)
        lattice, hierarchies = self._run.work("lattice"), self._search_input.hierarchies
        record_run(self._run.engine, self.policy, run_record, lattice, hierarchies, self._decoy_query())

    @cached_property
    def fully_suppressed(self) -> tuple[str, ...]:
        """The quasi-identifiers that are fully suppressed: all rows of the release show the same label."""
        statement = self._draft.recoding.statement
        flags = self._run.engine.rows(statement.fully_suppressed())[0]
        return tuple(column.name for column in statement.columns if column.quasi is not None and flags[column.quasi])

    @cached_property
    def loss(self) -> float:
        """The score by the measure ``loss``, whatever the policy's measure is."""
        from sqlanon.strategies.compare import compute_loss

        return compute_loss(self._search_input, self._draft.result)

    @cached_property
    def losses(self) -> Mapping[str, float]:
        """The loss of each generalized quasi-identifier, from 0 to 1; before noise and decoys."""
        from sqlanon.strategies.compare import compute_attribute_losses

        return compute_attribute_losses(self._search_input, self._draft.result)

    @property
    def refusals(self) -> tuple[str, ...]:
        """The reasons for which `publish` refuses the release: columns that give a quasi-identifier away."""
        return self._draft.dependencies.refusals

    @property
    def lattice(self) -> duckdb.DuckDBPyRelation:
        """The generalizations of the search: a relation.

        Columns: ``levels`` (in the policy's order), ``height``, ``bound`` (a lower bound on the score), ``status``
        (``satisfies``, ``violates``, or ``open``: undecided); for those that were checked ``classes`` and
        ``suppressed_rows`` (NULL if a part of the classes was enough to see that too many rows would be suppressed),
        with ``[source] person`` ``suppressed_persons`` (NULL if the rows were enough to see that there are too many),
        and ``score`` if they satisfy the policy.
        """
        return self._run.engine.relation(select_star(self._run.work("lattice")))

    @property
    def noisy(self) -> duckdb.DuckDBPyRelation | None:
        """The records with noise: a private relation; None without noise.

        Columns: ``record``, ``class``; for each attribute with noise, in the policy's order, ``x_0`` (the value as a
        number; for dates, days since 1970-01-01), ``v_0`` (with noise) and ``y_0`` (as released: rounded, within its
        bounds), ``x_1``, ...; ``released``: false if the record was suppressed after noise was drawn.

        Raises
        ------
        SourceError
            The source is in Spark.
        """
        if self._draft.noise is None:
            return None
        if self._search_input.source.access == "remote":
            raise SourceError(
                f"noisy shows rows of the source, and rows in {self._search_input.source.location} never leave it; "
                "noise, linking_risk and confidence have figures of them"
            )
        return self._run.engine.relation(self._draft.noise.drawn.all_records())

    @property
    def decoy_rows(self) -> duckdb.DuckDBPyRelation | None:
        """The decoys as they are released: a private relation; None without decoys. Nothing else shows which rows are
        decoys."""
        query = self._decoy_query()
        return None if query is None else self._run.engine.relation(query)

    def _decoy_query(self) -> exp.Select | None:
        return None if self._draft.decoys is None else self._draft.decoys.decoy_rows()

    def relation(self) -> duckdb.DuckDBPyRelation:
        """The rows of the release before it is published: a relation, on the connection of the `Database`.

        They are the rows of a release file, made by the same statement, with the same noise, decoys and order, and they
        pass the same audit. They are made once; `df`, `pl` and `arrow` convert them.

        The ledger does not record these rows, and they are not compared with earlier releases. Use `publish` before you
        give rows to others.

        Raises
        ------
        AuditError
            The audit refuses the release.
        ReleaseError
            A release file cannot hold the types of the columns; or the source is a frequency set, see `export`.

        Examples
        --------
        >>> import duckdb, sqlanon
        >>> people = duckdb.connect().sql("SELECT i % 2 AS ward, i AS age FROM range(6) AS t(i)")
        >>> policy = sqlanon.Policy(
        ...     attributes={"ward": {"role": "quasi", "hierarchy": "suppress"},
        ...                 "age": {"role": "quasi", "hierarchy": {"intervals": [10]}}},
        ...     privacy={"k": 3},
        ... )
        >>> with sqlanon.connect(people) as db:
        ...     db.anonymize(policy).relation().aggregate("ward, age, count(*)").order("ward").fetchall()
        [(0, '0-9', 3), (1, '0-9', 3)]
        """
        return self._run.engine.relation(select_star(self._release_rows))

    @cached_property
    def _release_rows(self) -> exp.Table:
        return pipeline.release_rows(self._draft)

    def df(self) -> pandas.DataFrame:
        """The rows of `relation` as a pandas data frame, with the errors of `relation`.

        DuckDB converts the types: dates become timestamps, decimals and HUGEINT floats. `arrow` keeps them.

        Raises
        ------
        MissingLibraryError
            ``pip install '.[pandas]'`` is needed.
        """
        return pandas_frame(self.relation())

    def pl(self) -> polars.DataFrame:
        """The rows of `relation` as a polars data frame, with the errors of `relation`.

        Raises
        ------
        MissingLibraryError
            ``pip install '.[polars]'`` is needed.
        """
        return polars_frame(self.relation())

    def arrow(self) -> pyarrow.Table:
        """The rows of `relation` as an Arrow table, with the errors of `relation`."""
        return self.relation().to_arrow_table()

    def sql(self, dialect: str = "duckdb") -> str:
        """The statement that makes the release. It reads work tables of the `Database` that returned this result.

        For a source in PostgreSQL or Spark, it is the statement that runs there, in its dialect. For a frequency set,
        it is the statement for the warehouse, and reads the tables that `export` writes.

        Parameters
        ----------
        dialect:
            The dialect, by sqlglot's name. To run the statement in another engine than DuckDB, copy the tables that it
            reads there, under the same names.

        Raises
        ------
        PolicyError
            For a frequency set: the dialect is unknown.
        UntranslatableError
            A part of the statement is not known to mean the same in that dialect.
        """
        source, statement = self._search_input.source, self._draft.statement
        query: exp.Expr = source.release_query(statement)
        if not source.can_recode:
            from sqlanon.warehouse import release_sql

            return release_sql(self._draft, dialect)
        if source.access != "rows":
            return source.render_statement(self._run.engine, query)
        if dialect in DIALECTS:
            # Some engines ignore an ORDER BY inside a subquery.
            rows = select_star(subquery(statement.select(shuffled=False), "released"))
            order = release_order(self._draft.quasi_identifiers)
            query = translate_query(rows.order_by(*order, copy=False), dialect)
        return without_variables(query, dialect).sql(dialect=Dialect.get_or_raise(dialect), pretty=True)

    @cached_property
    def chart(self) -> Charts:
        """Charts for notebooks: ``result.chart.classes()``, ``.frontier()``, ...; they need the extra ``report``."""
        from sqlanon.report.notebook import Charts

        return Charts(self._unpublished())

    def report(
        self, path: str | os.PathLike[str], private: bool = False, compared: duckdb.DuckDBPyRelation | None = None
    ) -> bool:
        """Write a report for people: one HTML file without links to others. Nothing is published.

        Parameters
        ----------
        path:
            The file of the report, ending in ``.html``.
        private:
            Show the source and the search, too; every page then says that it is for internal use only. Default: the
            report shows no more than the release will.
        compared:
            The answer of `Database.compare`, for a private report.

        Returns
        -------
        bool
            Whether all checks passed.

        Raises
        ------
        MissingLibraryError
            ``pip install '.[report]'`` is needed.
        ReleaseError
            The report cannot be written there.
        """
        return self._write_report(path, private, compared).is_verified

    def _write_report(
        self, path: str | os.PathLike[str], private: bool, compared: duckdb.DuckDBPyRelation | None
    ) -> ReportFacts:
        from sqlanon.report import report_result

        rows = [] if compared is None else compared.fetchall()
        comparison = [] if compared is None else [dict(zip(compared.columns, row, strict=True)) for row in rows]
        return report_result(self._unpublished(), path, private, comparison)

    def _unpublished(self) -> UnpublishedResult:
        from sqlanon.report import UnpublishedResult

        return UnpublishedResult(
            self._draft,
            self.generalization,
            self._run.work("lattice"),
            self.nodes,
            self.checked,
            self.sql(),
            self.proof,
            self.warnings,
            self.dependencies,
        )

    def publish(
        self, path: str | Path | None = None, table: str | None = None, force: bool = False, draft: bool = False
    ) -> AnyRelease:
        """Write the release to a new file, audit it there, and make it visible to readers in one step.

        Parameters
        ----------
        path:
            A DuckDB file; or a Parquet file, ending in ``.parquet``. Default: the policy's ``[release]``, which may
            name a schema in PostgreSQL or Spark.
        table:
            The name of the released table. Default: the policy's, else the name of the source's table.
        force:
            Publish even if the release breaks the privacy of an earlier one in the ledger. The ledger records it.
        draft:
            Publish a draft, for testing, as a policy with ``[release] draft = true`` does. A draft is audited and
            marked. It is not compared with releases, and later releases are not compared with it: do not share it.

        Returns
        -------
        Release
            On a server, an object with the same attributes and ``verify``.

        Raises
        ------
        ReleaseError
            The location cannot be written, or holds something else (for a draft: also a release); or the source is a
            frequency set, see `export`.
        AuditError
            The audit refused the release, and nothing has changed. If readers of an earlier release, too, would find
            classes that are smaller than promised, the error has the query that shows them.
        """
        started = time.perf_counter()
        self.record()
        release: AnyRelease
        release, ledger = pipeline.publish(self._draft, self.run_id, path, table, force, draft)
        if ledger.held_against:
            self.held_against = tuple(map(format_location, ledger.held_against))
        self._warn(*ledger.notes(release.manifest.digest), *getattr(release, "warnings", ()))
        self.seconds["publish"] = time.perf_counter() - started
        return release

    def _warn(self, *messages: str) -> None:
        """Add warnings; a result that is published twice has each once."""
        self.warnings += tuple(message for message in messages if message not in self.warnings)

    def export(self, folder: str | os.PathLike[str], dialect: str, draft: bool = False) -> Path:
        """Write the files that make the release in a warehouse, for a source that is a frequency set.

        ``release.sql`` makes the release, and reads the tables in the Parquet files. ``audit.sql`` has the queries to
        run before readers get access. The folder has values of the source: it is private.

        Parameters
        ----------
        folder:
            A new or empty folder.
        dialect:
            ``bigquery``, ``databricks``, ``duckdb``, ``postgres``, ``snowflake``, ``spark`` or ``trino``.
        draft:
            Export a draft, as in `publish`: its statements are marked, and warnings of later releases do not count it.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        PolicyError
            The dialect is unknown.
        ReleaseError
            The source is not a frequency set; or the folder is not empty, or cannot be written.
        """
        from sqlanon.warehouse import export

        if self._search_input.source.can_recode:
            raise ReleaseError("only a frequency set can be exported: publish this result instead")
        figures = {"source_rows": self.rows} | self._select("released_rows", "classes", "smallest_class")
        exported = replace(self._draft, is_draft=draft or self.policy.is_draft)
        with self._record_export(folder, dialect, exported.is_draft):
            return export(exported, figures, folder, dialect)

    @contextmanager
    def _record_export(self, folder: str | os.PathLike[str], dialect: str, is_draft: bool) -> Iterator[None]:
        """Record an export in the ledger, and warn about the releases that it is not compared with."""
        section, catalog, engine = self.policy.release, self.policy.catalog, self._run.engine
        if catalog is None or (section is not None and not section.ledger):
            yield
            return
        from sqlanon.ledger import Export, read_ledger, recording_export, warn_of_uncompared_export

        ledger = read_ledger(engine, catalog.database, Reach(self.policy))
        name, path = "release" if section is None else section.table, os.path.realpath(folder)
        export = Export(self.run_id, utc_now(), path, name, dialect.lower(), self._run.identity, is_draft)
        with recording_export(engine, catalog.database, export):
            yield
        if not is_draft:
            self._warn(*warn_of_uncompared_export(ledger.exports, ledger.publications))


class Comparison:
    """The results of several strategies for one policy: a relation of DuckDB, which notebooks show as a table.

    It has all methods of the relation: ``fetchall``, ``filter``, ``order``, ``df``, ... `Database.compare` describes
    the columns.

    Attributes
    ----------
    relation:
        The relation.
    undecided_person:
        A warning if a column numbers people with several rows and the policy does not declare who a person is: all
        figures count rows, and `Database.anonymize` may refuse the policy. Otherwise None.
    """

    def __init__(self, relation: duckdb.DuckDBPyRelation, measure: str, undecided_person: str | None = None) -> None:
        self.relation = relation
        self.undecided_person = undecided_person
        self._measure = measure

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__arrow_c_stream__":  # notebooks look for many methods
            raise AttributeError(name)
        return getattr(self.relation, name)

    def __len__(self) -> int:
        return len(self.relation)

    def __repr__(self) -> str:
        return repr(self.relation)

    def _repr_html_(self) -> str:
        headings = ["strategy", f"score ({self._measure})", "loss", "classes", "suppressed rows", "seconds", "note"]
        rows = []
        for values in self.relation.project("*").fetchall():
            row = dict(zip(self.relation.columns, values, strict=True))
            notes = {
                "optimal": row["optimal"],
                "does not guarantee k": row["guarantees_k"] is False,
                "stopped by a time limit": row["stopped"],
                row["error"]: row["error"],
            }
            figures = [row[name] for name in ("strategy", "score", "loss", "classes", "suppressed_rows")]
            rows.append((*figures, round(row["seconds"], 2), ", ".join(note for note, holds in notes.items() if holds)))
        return html_table("Strategies compared", headings, rows)
