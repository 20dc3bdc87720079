{#-
  Parts of the tests. In them q0, q1, ... are the columns that define the equivalence classes, and value is the sensitive
  attribute. Columns are renamed first, because a column may be called value or n. Names are quoted: write them as the
  database has them. NULL is a value like any other, as in GROUP BY.
-#}

{%- macro _quoted(name) -%}
  {%- set mark = adapter.quote("x")[0] -%}
  {{ adapter.quote(name | replace(mark, mark ~ mark)) }}
{%- endmacro -%}

{%- macro _keys(columns, prefix="") -%}
  {%- for name in columns -%}{{ prefix }}q{{ loop.index0 }}{{ ", " if not loop.last }}{%- endfor -%}
{%- endmacro -%}

{%- macro _named_keys(columns) -%}
  {%- for name in columns -%}q{{ loop.index0 }} as {{ sqlanon._quoted(name) }}{{ ", " if not loop.last }}{%- endfor -%}
{%- endmacro -%}

{#- The rows of each value in each class. -#}
{%- macro _counts(model, columns, attribute) -%}
  select {{ sqlanon._keys(columns) }}, value, count(*) * 1.0 as n
  from (
    select
      {% for name in columns -%}{{ sqlanon._quoted(name) }} as q{{ loop.index0 }}, {% endfor -%}
      {{ sqlanon._quoted(attribute) }} as value
    from {{ model }}
  ) as renamed
  group by {{ sqlanon._keys(columns) }}, value
{%- endmacro -%}

{#- The same with the whole of another table, as a class by itself: in_class is 0. p is the share of a value. -#}
{%- macro _shares(model, columns, attribute, reference) -%}
  select
    in_class, {{ sqlanon._keys(columns) }}, value,
    n / sum(n) over (partition by in_class, {{ sqlanon._keys(columns) }}) as p
  from (
    select 1 as in_class, {{ sqlanon._keys(columns) }}, value, n
    from ({{ sqlanon._counts(model, columns, attribute) }}) as classes
    union all
    select 0 as in_class, {% for name in columns -%}null as q{{ loop.index0 }}, {% endfor -%} value, count(*) * 1.0 as n
    from (select {{ sqlanon._quoted(attribute) }} as value from {{ reference or model }}) as source_values
    group by value
  ) as counts
{%- endmacro -%}

{%- macro _refuse(test, problem) -%}
  {{ exceptions.raise_compiler_error("sqlanon." ~ test ~ ": " ~ problem) }}
{%- endmacro -%}

{%- macro _refuse_columns(test, columns) -%}
  {%- if columns is string or columns is not iterable or not columns -%}
    {{ sqlanon._refuse(test, "columns must be a list of quasi-identifiers, such as [zip, age]") }}
  {%- endif -%}
{%- endmacro -%}
