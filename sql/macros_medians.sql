-- In a release whose labels are medians (search.summary = 'median') these take the place of the macros of
-- macros_analysis.sql that read labels: a median stands for a class, and says nothing of where its values are.

CREATE SCHEMA IF NOT EXISTS sqlanon;

CREATE OR REPLACE MACRO sqlanon.share(label, low, high) AS (
    error('share: labels of this release are medians (search.summary = median), which bound no value: publish it with summary = "range" to count rows in intervals')
);

CREATE OR REPLACE MACRO sqlanon.overlaps(label, low, high) AS (
    error('overlaps: labels of this release are medians (search.summary = median), which bound no value: publish it with summary = "range" to count rows in intervals')
);

CREATE OR REPLACE MACRO sqlanon.estimated_count(rel, attribute, low, high, suppressed := 0) AS TABLE (
    SELECT error('estimated_count: labels of this release are medians (search.summary = median), which bound no value: publish it with summary = "range" to count rows in intervals') AS sure
);

CREATE OR REPLACE MACRO sqlanon.estimated_average(
    rel, attribute, least := NULL, most := NULL, suppressed := 0
) AS TABLE (
    SELECT error('estimated_average: labels of this release are medians (search.summary = median), which bound no value: publish it with summary = "range" for bounds of the average') AS lower
);
