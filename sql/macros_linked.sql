-- Linked tables: how many persons share what an attacker may know of a person's rows in other tables.
--
-- A relation with the columns person, class and known_row has one row for each row that belongs to a person: the key of
-- the person, the person's own quasi-identifiers, and the quasi-identifiers of the row. A person without such rows has
-- one row with known_row NULL. Every release of linked tables has a view known_rows for km_anonymity, and a view
-- whole_rows, whose rows contain the rows that belong to them, for signatures and relational_k.

-- The fewest persons who support a combination of a class and up to m known rows (k), and the number of combinations. m
-- is 1, 2 or 3. Equal rows of a person are known by their number: whoever has three also supports two of them.
-- (Terrovitis, Mamoulis, Kalnis, "Privacy-preserving anonymization of set-valued data", PVLDB 2008, with the person's own
-- quasi-identifiers.)
CREATE OR REPLACE MACRO sqlanon.km_anonymity(rel, m) AS TABLE (
    WITH "sqlanon copies" AS (
        SELECT person, class, known_row, least(count(*), m) AS copies
        FROM query_table(rel)
        WHERE known_row IS NOT NULL
        GROUP BY person, class, known_row
    ),
    "sqlanon rows" AS (
        SELECT person, class, known_row, unnest(range(1, copies + 1)) AS copy FROM "sqlanon copies"
    ),
    "sqlanon known" AS (
        SELECT count(DISTINCT person) AS persons FROM query_table(rel) GROUP BY class
        UNION ALL
        SELECT count(*) AS persons FROM "sqlanon rows" WHERE copy = 1 GROUP BY class, known_row
    ),
    "sqlanon known together" AS (
        SELECT count(*) AS persons
        FROM "sqlanon rows" AS a, "sqlanon rows" AS b
        WHERE m >= 2 AND a.person = b.person AND a.copy = 1
            AND ((b.known_row > a.known_row AND b.copy = 1) OR (b.known_row = a.known_row AND b.copy = 2))
        GROUP BY a.class, a.known_row, b.known_row
        UNION ALL
        SELECT count(*) AS persons
        FROM "sqlanon rows" AS a, "sqlanon rows" AS b, "sqlanon rows" AS c
        WHERE m >= 3 AND a.person = b.person AND a.person = c.person AND a.copy = 1
            AND ((b.known_row > a.known_row AND b.copy = 1) OR (b.known_row = a.known_row AND b.copy = 2))
            AND ((c.known_row > b.known_row AND c.copy = 1) OR (c.known_row = b.known_row AND c.copy = b.copy + 1))
        GROUP BY a.class, a.known_row, b.known_row, c.known_row
    )
    SELECT
        CASE WHEN m IN (1, 2, 3) THEN min(persons) ELSE error('m must be 1, 2 or 3') END AS k,
        count(*) AS combinations
    FROM (
        SELECT persons FROM "sqlanon known" UNION ALL SELECT persons FROM "sqlanon known together"
    ) AS "sqlanon combinations"
);

-- The signatures of persons: their class with the sorted list of all their rows, and the number of persons who share it.
CREATE OR REPLACE MACRO sqlanon.signatures(rel) AS TABLE (
    SELECT class, known_rows, count(*) AS persons
    FROM (
        SELECT class, list_sort(list(known_row) FILTER (WHERE known_row IS NOT NULL)) AS known_rows
        FROM query_table(rel)
        GROUP BY person, class
    ) AS "sqlanon signatures"
    GROUP BY class, known_rows
);

-- The fewest persons with the same signature (k), and the number of signatures.
-- (Nergiz, Clifton, Nergiz, "Multirelational k-anonymity", TKDE 2009.)
CREATE OR REPLACE MACRO sqlanon.relational_k(rel) AS TABLE (
    SELECT min(persons) AS k, count(*) AS signatures
    FROM (
        SELECT count(*) AS persons
        FROM (
            SELECT class, list_sort(list(known_row) FILTER (WHERE known_row IS NOT NULL)) AS known_rows
            FROM query_table(rel)
            GROUP BY person, class
        ) AS "sqlanon signatures"
        GROUP BY class, known_rows
    ) AS "sqlanon groups"
);
