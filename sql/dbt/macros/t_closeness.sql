{#-
  t-closeness (Li et al. 2007): the classes in which a sensitive attribute is distributed farther than t from the reference,
  which is the whole table unless another relation is given, such as the source.
  distance: equal (half the sum of the differences), ordered (values in their order, NULL first), or hierarchical (needs
  hierarchy, a relation with one row a value, and levels, its columns from the value to the top).
-#}
{% test t_closeness(model, columns, attribute, t, distance="equal", reference=none, hierarchy=none, levels=none) %}
{{- sqlanon._refuse_columns("t_closeness", columns) -}}
{%- if t is not number or t < 0 or t > 1 -%}{{ sqlanon._refuse("t_closeness", "t must be a number from 0 to 1") }}{%- endif -%}
{%- if distance not in ("equal", "ordered", "hierarchical") -%}
  {{ sqlanon._refuse("t_closeness", "distance must be equal, ordered or hierarchical") }}
{%- endif -%}
{%- set is_tree = hierarchy is not none and levels is not none and levels is not string and levels | length >= 2 -%}
{%- if (distance == "hierarchical" and not is_tree) or (distance != "hierarchical" and (hierarchy or levels)) -%}
  {{ sqlanon._refuse(
    "t_closeness", "hierarchy and levels (its columns, from the value to the top) go with distance: hierarchical, and with no other"
  ) }}
{%- endif -%}
{%- set keys = sqlanon._keys(columns) -%}
{%- set shares = sqlanon._shares(model, columns, attribute, reference) -%}
select {{ sqlanon._named_keys(columns) }}, distance
from (
{%- if distance == "ordered" %}
  select {{ keys }}, sum(abs(class_share - source_share)) / max(steps) as distance
  from (
    select
      {{ sqlanon._keys(columns, "classes.") }},
      sum(coalesce(cells.p, 0.0)) over (
        partition by classes.class_id order by scale.place rows between unbounded preceding and current row
      ) as class_share,
      sum(scale.q) over (
        partition by classes.class_id order by scale.place rows between unbounded preceding and current row
      ) as source_share,
      case when scale.places > 1 then scale.places - 1 else 1 end as steps
    from (
      select class_id, {{ keys }} from ({{ sqlanon._placed(shares, keys) }}) as placed
      where in_class = 1
      group by class_id, {{ keys }}
    ) as classes
    cross join (
      select place, sum(case when in_class = 0 then p else 0.0 end) as q, max(max(place)) over () as places
      from ({{ sqlanon._placed(shares, keys) }}) as placed
      group by place
    ) as scale
    left join ({{ sqlanon._placed(shares, keys) }}) as cells
      on cells.class_id = classes.class_id and cells.place = scale.place
  ) as cumulated
  group by {{ keys }}
{%- else %}
  {%- set height = levels | length - 1 if distance == "hierarchical" else 1 %}
  select {{ keys }}, sum(case when p > q then p - q else 0.0 end) / {{ height }} as distance
  from (
    select
      in_class, {{ keys }}, p,
      sum(case when in_class = 0 then p else 0.0 end) over (partition by tree_level, label, value) as q
    from (
      {%- if distance == "equal" %}
      select in_class, {{ keys }}, 0 as tree_level, 0 as label, value, p from ({{ shares }}) as shares
      {%- else %}
      {%- for name in levels[:-1] %}
      select in_class, {{ keys }}, tree_level, label, value, sum(p) as p
      from (
        select
          shares.in_class, {{ sqlanon._keys(columns, "shares.") }}, {{ loop.index0 }} as tree_level, tree.label, shares.p,
          case when tree.label is null then shares.value end as value
        from ({{ shares }}) as shares
        left join (
          select {{ sqlanon._quoted(levels[0]) }} as leaf, min(cast({{ sqlanon._quoted(name) }} as {{ dbt.type_string() }})) as label
          from {{ hierarchy }}
          group by {{ sqlanon._quoted(levels[0]) }}
        ) as tree on tree.leaf = shares.value
      ) as labelled
      group by in_class, {{ keys }}, tree_level, label, value
      {{- " union all" if not loop.last }}
      {%- endfor %}
      {%- endif %}
    ) as nodes
  ) as compared
  where in_class = 1
  group by {{ keys }}
{%- endif %}
) as classes
where distance > {{ t }} + 1e-12
{% endtest %}

{#- Shares with a number for the class, and the place of the value in its order. -#}
{%- macro _placed(shares, keys) -%}
  select
    in_class, {{ keys }}, p,
    dense_rank() over (order by in_class, {{ keys }}) as class_id,
    dense_rank() over (order by case when value is null then 0 else 1 end, value) as place
  from ({{ shares }}) as shares
{%- endmacro -%}
