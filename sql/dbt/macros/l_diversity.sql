{#-
  l-diversity (Machanavajjhala et al. 2007): the classes that are not l-diverse in a sensitive attribute.
  kind: distinct (fewer than l values), entropy (entropy below ln l), or recursive (the most frequent value has at least c
  times the rows of the l-th and rarer ones together; needs c).
-#}
{% test l_diversity(model, columns, attribute, l, kind="distinct", c=none) %}
{{- sqlanon._refuse_columns("l_diversity", columns) -}}
{%- if kind not in ("distinct", "entropy", "recursive") -%}
  {{ sqlanon._refuse("l_diversity", "kind must be distinct, entropy or recursive") }}
{%- endif -%}
{%- if l is not number or l < 1 or (kind != "entropy" and l is not integer) -%}
  {{ sqlanon._refuse("l_diversity", "l must be a number of at least 1, and an integer unless kind is entropy") }}
{%- endif -%}
{%- if (kind == "recursive") != (c is number) or (c is number and c <= 0) -%}
  {{ sqlanon._refuse("l_diversity", "c must be a number above 0 if kind is recursive; otherwise leave it out") }}
{%- endif -%}
select {{ sqlanon._named_keys(columns) }}, class_size, figure
from (
  select
    {{ sqlanon._keys(columns) }},
    sum(n) as class_size,
    {%- if kind == "distinct" %}
    count(*) as figure
    {%- elif kind == "entropy" %}
    ln(sum(n)) - sum(n * ln(n)) / sum(n) as figure
    {%- else %}
    max(n) / nullif(sum(case when place >= {{ l }} then n else 0.0 end), 0) as figure
    {%- endif %}
  from (
    select
      {{ sqlanon._keys(columns) }}, n,
      row_number() over (partition by {{ sqlanon._keys(columns) }} order by n desc) as place
    from ({{ sqlanon._counts(model, columns, attribute) }}) as counts
  ) as ranked
  group by {{ sqlanon._keys(columns) }}
) as classes
{%- if kind == "distinct" %}
where figure < {{ l }}
{%- elif kind == "entropy" %}
where figure < ln({{ l | float }}) - 1e-12
{%- elif l == 1 %}
where 1 = 0
{%- else %}
where figure is null or figure >= {{ c }}
{%- endif %}
{% endtest %}
