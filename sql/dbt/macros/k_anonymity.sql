{#- k-anonymity (Samarati and Sweeney 1998): the classes of fewer than k rows. -#}
{% test k_anonymity(model, columns, k) %}
{{- sqlanon._refuse_columns("k_anonymity", columns) -}}
{%- if k is not integer or k < 1 -%}{{ sqlanon._refuse("k_anonymity", "k must be an integer of at least 1") }}{%- endif -%}
select {{ sqlanon._named_keys(columns) }}, n as class_size
from (
  select {{ sqlanon._keys(columns) }}, count(*) as n
  from (
    select {% for name in columns -%}{{ sqlanon._quoted(name) }} as q{{ loop.index0 }}{{ ", " if not loop.last }}{%- endfor %}
    from {{ model }}
  ) as renamed
  group by {{ sqlanon._keys(columns) }}
) as classes
where n < {{ k }}
{% endtest %}
