-- The macro library: the levels of labels. The rules of macros.sql apply here, too.
--
-- A release has the table sqlanon.label_levels: for each label of a generalized attribute and each level from its own
-- up, the label at that level. The macros read it by name, so another relation with these four columns can replace
-- it: for an attached release, for example, levels := 'r.sqlanon.label_levels'.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The level of a label: 0 is the value itself. For a range that is not a label of the hierarchy, the lowest level at
-- which one label contains all of it. NULL if that is unknown, as for sets.
CREATE OR REPLACE MACRO sqlanon.level(attribute, label, levels := 'sqlanon.label_levels') AS (
    CASE
        WHEN NOT EXISTS (
            FROM query_table(levels) AS l("sqlanon attribute") WHERE lower("sqlanon attribute") = lower(attribute)
        )
        THEN error('no attribute with labels is called ' || attribute)
        ELSE (
            SELECT min("sqlanon level")
            FROM query_table(levels) AS l("sqlanon attribute", "sqlanon label", "sqlanon level")
            WHERE lower("sqlanon attribute") = lower(attribute) AND "sqlanon label" = label::VARCHAR
        )
    END
);

-- The next different label above a label. NULL at the top, for NULL, and if it is unknown.
CREATE OR REPLACE MACRO sqlanon.parent(attribute, label, levels := 'sqlanon.label_levels') AS (
    CASE
        WHEN NOT EXISTS (
            FROM query_table(levels) AS l("sqlanon attribute") WHERE lower("sqlanon attribute") = lower(attribute)
        )
        THEN error('no attribute with labels is called ' || attribute)
        ELSE (
            SELECT min_by("sqlanon ancestor", "sqlanon level") FILTER ("sqlanon ancestor" <> "sqlanon label")
            FROM query_table(levels) AS l("sqlanon attribute", "sqlanon label", "sqlanon level", "sqlanon ancestor")
            WHERE lower("sqlanon attribute") = lower(attribute) AND "sqlanon label" = label::VARCHAR
        )
    END
);

-- The label at a level, for GROUP BY. A wider label is unchanged; so is a label without known levels.
CREATE OR REPLACE MACRO sqlanon.roll_up(attribute, label, level, levels := 'sqlanon.label_levels') AS (
    CASE
        WHEN NOT EXISTS (
            FROM query_table(levels) AS l("sqlanon attribute") WHERE lower("sqlanon attribute") = lower(attribute)
        )
        THEN error('no attribute with labels is called ' || attribute)
        ELSE coalesce((
            SELECT min("sqlanon ancestor") FILTER ("sqlanon level" = level)
            FROM query_table(levels) AS l("sqlanon attribute", "sqlanon label", "sqlanon level", "sqlanon ancestor")
            WHERE lower("sqlanon attribute") = lower(attribute) AND "sqlanon label" = label::VARCHAR
        ), label::VARCHAR)
    END
);
