"""Plan the warehouse statements for a policy, from the policy and its hierarchy files alone."""

from __future__ import annotations

from sqlanon.engines.base import WorkEngine
from sqlanon.engines.dialects.variables import comment_without_variables
from sqlanon.engines.statement_runner import Plan, Stage, StatementRunner, one_line
from sqlanon.errors import HierarchyError, PolicyError
from sqlanon.hierarchies import build_hierarchy
from sqlanon.policy import FileRule, Policy
from sqlanon.policy.compatibility import REMOTE_SOURCES, collect_sections, find_conflicts
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.strategies.examples import example_height, example_levels, find_lattice_size
from sqlanon.support.coding import CodedAttribute, Column
from sqlanon.support.expressions import table
from sqlanon.warehouse import statements
from sqlanon.warehouse.statements import SUPPRESSED, WarehouseTarget, check_dialect, name_value_tables


def plan_for_warehouse(policy: Policy, dialect: str, engine: WorkEngine) -> Plan:
    """Plan the frequency set, the release and the audit without reading any database.

    The example release is at level 1, or the lowest allowed level, and its columns may be NULL.
    """
    dialect = check_dialect(dialect)
    if conflicts := list(find_conflicts(REMOTE_SOURCES, collect_sections(dict(policy), exported=True))):
        raise PolicyError(conflicts)
    target, names = WarehouseTarget.from_policy(policy), {name: name for name in policy.attributes}
    recoding = _example_recoding(policy, engine)

    def comment_of(comment: str) -> str:
        return comment_without_variables(one_line(comment), dialect)

    labels = zip(policy.generalized_attributes, name_value_tables(policy.generalized_attributes), strict=True)
    uploaded = ", ".join(f"{name} (of {comment_of(attribute)!r})" for attribute, name in labels)
    audit = statements.audit_queries(policy, target, names)
    figures = statements.release_figures(target.release, policy.generalized_attributes)
    missing = f"; not in SQL: {comment_of(', '.join(audit.not_in_sql))}" if audit.not_in_sql else ""
    stages = (
        Stage(
            "frequency set",
            "the combinations of values with their counts; write it as Parquet, and name the files in the policy: "
            'frequency_set = "..." under [source]',
            (target.frequency_set_text(names, dialect),),
        ),
        Stage(
            "release",
            f"over uploaded tables: values with labels, {uploaded}; suppressed classes, {SUPPRESSED}; "
            f"sqlanon anonymize POLICY.toml --export FOLDER --dialect {dialect} finds and writes them, with this "
            "statement (here: at level 1, or the lowest allowed level)",
            (*statements.setup_statements(dialect), target.release_text(recoding, dialect)),
        ),
        Stage(
            "audit",
            "the classes that break a requirement, one query each, and the rows in which the release differs from its "
            "statement: there should be none; then the classes"
            f"{missing}",
            (
                *(f"-- {comment_of(name)}\n{target.text(query, dialect)}" for name, query in audit.violations),
                "-- the rows in which the release and the statement differ\n"
                f"{target.text(target.different_rows(recoding), dialect)}",
                f"-- the classes\n{target.text(figures, dialect)}",
            ),
        ),
    )
    return Plan(stages, *find_lattice_size(policy, engine))


def _height(policy: Policy, name: str, engine: WorkEngine) -> int:
    steps, rules = StatementRunner(engine, []), policy.attributes[name].hierarchy or ()
    files = tuple(rule for rule in rules if isinstance(rule, FileRule))
    if files:
        _, flaws = build_hierarchy(steps, name, files, table("values"), "VARCHAR", table("hierarchy"))
        if flaws:
            raise HierarchyError(flaws)
    return example_height(steps, rules)


def _example_recoding(policy: Policy, engine: WorkEngine) -> FullDomainRecoding:
    attributes = tuple(
        CodedAttribute(
            name,
            _height(policy, name, engine),
            table(name),
            nullable=True,
            unknown=policy.attributes[name].on_unknown == "suppress",
            open_ends=policy.attributes[name].has_open_ends,
        )
        for name in policy.generalized_attributes
    )
    number = {name: i for i, name in enumerate(policy.generalized_attributes)}
    released = tuple(
        Column(name, number.get(name))
        for name, attribute in policy.attributes.items()
        if attribute.role != "identifying"
    )
    heights = tuple(attribute.height for attribute in attributes)
    levels = example_levels(policy, heights)
    # In one class of all rows, only unknown values distinguish suppressed rows.
    is_distinguished = levels != heights or any(attribute.unknown for attribute in attributes)
    return FullDomainRecoding(
        table("source"),
        released,
        attributes,
        tuple("*" for _ in attributes),
        levels,
        table(SUPPRESSED) if levels != heights else None,
        mask=policy.masks_suppressed_rows and is_distinguished,
    )
