{#-
  A model whose rows are private and whose table is a release of them: sqlanon reads the model's SQL, searches, audits and
  publishes as the policy says, and the table is a copy of the published rows. Needs dbt-duckdb, and sqlanon in dbt's Python.
  Nothing else is made of the model's SQL: no view and no table has its rows.
-#}
{% materialization anonymized, adapter="duckdb", supported_languages=["sql"] %}
  {%- set policy = config.require("policy") -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type="table") -%}
  {%- set intermediate = make_intermediate_relation(target) -%}
  {%- set backup = make_backup_relation(target, existing.type if existing else "table") -%}
  {{ drop_relation_if_exists(load_cached_relation(intermediate)) }}
  {{ drop_relation_if_exists(load_cached_relation(backup)) }}
  {{ run_hooks(pre_hooks) }}

  {%- set given = {"policy": policy, "query": compiled_code, "table": intermediate | string} -%}
  {% call statement("main", language="python") -%}
import json
from uuid import uuid4

import sqlanon

GIVEN = json.loads({{ tojson(tojson(given)) }})


class dbtObj:
    def __init__(self, load_df_function):
        pass


def model(dbt, session):
    policy = sqlanon.Policy.load(GIVEN["policy"])
    if policy.release is not None and policy.release.draft:
        raise sqlanon.ReleaseError("release.draft: the table of a model cannot show that it is a draft: remove the key")
    source = {"database": None, "table": None, "files": (), "query": GIVEN["query"]}
    policy = policy.model_copy(update={"source": policy.source.model_copy(update=source)})
    with sqlanon.connect(session.cursor()) as db:
        release = db.anonymize(policy).publish()
    path, alias = str(release.path).replace("'", "''"), f"sqlanon_{uuid4().hex}"
    if path.endswith(".parquet"):
        session.execute(f"CREATE TABLE {GIVEN['table']} AS FROM read_parquet('{path}')")
    else:
        name = release.table.replace('"', '""')
        session.execute(f"ATTACH '{path}' AS {alias} (READ_ONLY)")
        session.execute(f'CREATE TABLE {GIVEN["table"]} AS FROM {alias}."{name}"')
        session.execute(f"DETACH {alias}")
    return session.sql("SELECT 1")


def materialize(made, session):
    pass
  {%- endcall %}

  {% if existing is not none %}
    {{ adapter.rename_relation(existing, backup) }}
  {% endif %}
  {{ adapter.rename_relation(intermediate, target) }}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks) }}
  {{ adapter.commit() }}
  {{ drop_relation_if_exists(backup) }}
  {{ return({"relations": [target]}) }}
{% endmaterialization %}
