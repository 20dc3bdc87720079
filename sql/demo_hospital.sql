-- The hospital of `sqlanon demo`: `patients`, and `voters`, a public list with the names of some of them. Everybody is
-- invented. Parameters: $rows (patients) and $seed.
--
-- Random numbers are hashes of (seed, person, purpose), so that the tables are the same on every run, machine and number
-- of threads. setseed() guarantees this for one thread only, and hash() may change between versions of DuckDB; md5 does
-- not.

CREATE TEMP MACRO dice(seed, person, what) AS    -- uniform in [0, 1)
    (md5_number_lower(concat_ws('/', seed, person, what)) >> 11) / 9007199254740992;
CREATE TEMP MACRO pick(names, seed, person, what) AS
    names[1 + CAST(floor(len(names) * dice(seed, person, what)) AS INTEGER)];

-- Ages in years, and how many people in a thousand have them.
CREATE TEMP TABLE ages AS
SELECT first_age, last_age, (sum(people) OVER (ORDER BY first_age) - people) / 1000 AS starts
FROM (VALUES (0, 9, 107), (10, 19, 118), (20, 29, 128), (30, 39, 134), (40, 49, 126), (50, 59, 130),
             (60, 69, 121), (70, 79, 86), (80, 89, 41), (90, 99, 9)) AS v(first_age, last_age, people);

-- Areas: the first three digits of a ZIP, how many ZIPs begin with them, and how many people in a
-- thousand live there. Within an area, the i-th ZIP has a share proportional to 1/i: a few large towns, many small places.
CREATE TEMP TABLE zips AS
WITH areas AS (
    FROM (VALUES ('021', 48, 330), ('024', 18, 110), ('018', 40, 120), ('019', 36, 100), ('017', 34, 90),
                 ('016', 12, 80), ('023', 44, 70), ('025', 30, 40), ('013', 38, 35), ('012', 42, 25)
    ) AS v(area, zips, people)
), places AS (
    SELECT area || lpad(CAST(2 * i AS VARCHAR), 2, '0') AS zip,
           CAST(floor(1e6 * people / i / list_sum(list_transform(range(1, zips + 1), lambda j: 1 / j))) AS BIGINT)
               AS people
    FROM areas, unnest(range(1, zips + 1)) AS u(i)
)
SELECT zip, (sum(people) OVER (ORDER BY zip) - people) / sum(people) OVER () AS starts FROM places;

-- Diagnoses: the mean cost, and the frequency among women and men under 15, under 50, and older.
CREATE TEMP TABLE diagnoses AS
WITH frequencies AS (
    UNPIVOT (
        FROM (VALUES ('hypertension', 900, 2, 60, 230, 2, 80, 220), ('short breath', 1400, 120, 70, 90, 130, 60, 90),
                     ('chest pain', 2600, 5, 60, 110, 5, 80, 150), ('obesity', 1100, 40, 90, 70, 40, 80, 60),
                     ('diabetes', 1700, 10, 50, 120, 10, 60, 130), ('fracture', 4800, 160, 80, 100, 200, 130, 60),
                     ('influenza', 500, 330, 140, 60, 330, 150, 60), ('depression', 1900, 30, 150, 60, 20, 90, 40),
                     ('appendicitis', 6200, 80, 40, 10, 80, 50, 10), ('childbirth', 5400, 0, 170, 0, 0, 0, 0),
                     ('asthma', 1000, 190, 70, 40, 210, 60, 30), ('breast cancer', 14500, 0, 12, 50, 0, 0, 1),
                     ('prostate cancer', 13200, 0, 0, 0, 0, 2, 60), ('stroke', 9800, 1, 6, 60, 1, 8, 70),
                     ('hepatitis', 3900, 1, 12, 8, 1, 16, 10), ('HIV', 7300, 0, 6, 2, 0, 14, 4)
        ) AS v(diagnosis, mean_cost, f_child, f_adult, f_older, m_child, m_adult, m_older)
    ) ON f_child, f_adult, f_older, m_child, m_adult, m_older INTO NAME who VALUE people
)
SELECT diagnosis, mean_cost, who,
       (sum(people) OVER (PARTITION BY who ORDER BY diagnosis) - people) / sum(people) OVER (PARTITION BY who) AS starts
FROM frequencies WHERE people > 0;

-- Twice as many people as patients: the second half was never in the hospital.
CREATE TEMP TABLE people AS
WITH born AS (
    SELECT person,
           DATE '2026-01-01' - 1 - CAST(floor(365.2425 * (first_age
               + (last_age + 1 - first_age) * dice($seed, person, 'age'))) AS INTEGER) AS birth_date
    FROM (SELECT i AS person, dice($seed, i, 'ages') AS draw FROM range(2 * $rows) AS r(i))
    ASOF JOIN ages ON draw >= starts
), placed AS (
    SELECT person, birth_date, zip, date_sub('year', birth_date, DATE '2026-01-01') AS age,
           CASE WHEN dice($seed, person, 'sex') < CASE WHEN age < 60 THEN 0.49 WHEN age < 80 THEN 0.53 ELSE 0.62 END
                THEN 'f' ELSE 'm' END AS sex
    FROM (SELECT *, dice($seed, person, 'zip') AS draw FROM born) ASOF JOIN zips ON draw >= starts
)
SELECT person, age, zip, birth_date, sex,
       pick(CASE sex WHEN 'f'
                THEN ['Ada', 'Alma', 'Bea', 'Clara', 'Dora', 'Edith', 'Elsa', 'Fay', 'Gwen', 'Hanna', 'Ida', 'Ines',
                      'Joan', 'Kira', 'Lena', 'Lucia', 'Mara', 'Nora', 'Olga', 'Pia', 'Rosa', 'Ruth', 'Tess', 'Vera']
                ELSE ['Abel', 'Adam', 'Anton', 'Basil', 'Carl', 'Dan', 'Emil', 'Felix', 'Georg', 'Hugo', 'Ivan', 'Jonas',
                      'Karl', 'Leon', 'Luis', 'Marco', 'Nils', 'Omar', 'Otto', 'Paul', 'Rene', 'Simon', 'Theo', 'Viktor']
            END, $seed, person, 'first name') || ' '
       || pick(['Al', 'Bram', 'Cor', 'Dun', 'Elder', 'Fen', 'Gar', 'Hollo', 'Iver', 'Kestre', 'Lum', 'Mossa', 'Nether',
                'Orl', 'Pem', 'Quill', 'Rook', 'Sterl', 'Thorn', 'Under', 'Vell', 'Wither'], $seed, person, 'surname')
       || pick(['beck', 'bury', 'combe', 'dale', 'ford', 'grove', 'ham', 'lake', 'mere', 'ridge', 'stead', 'thwaite',
                'wick', 'worth', 'yard'], $seed, person, 'surname ending') AS name,
       CAST(1 + CAST(floor(240 * dice($seed, person, 'house')) AS INTEGER) AS VARCHAR) || ' '
       || pick(['Acorn', 'Bridge', 'Canal', 'Church', 'Dover', 'Elm', 'Ferry', 'Garden', 'Harbor', 'Hill', 'Ivy', 'King',
                'Lake', 'Linden', 'Maple', 'Mill', 'Oak', 'Orchard', 'Park', 'Pine', 'Quarry', 'River', 'School',
                'Spring', 'Station', 'Union', 'Walnut', 'Willow'], $seed, person, 'street')
       || pick([' Street', ' Street', ' Road', ' Avenue', ' Lane'], $seed, person, 'way') AS address
FROM placed;

CREATE TABLE patients AS
WITH ill AS (
    SELECT *, dice($seed, person, 'diagnosis') AS draw, dice($seed, person, 'ethnicity') AS origin,
           concat(sex, CASE WHEN age < 15 THEN '_child' WHEN age < 50 THEN '_adult' ELSE '_older' END) AS who
    FROM people WHERE person < $rows
)
SELECT name, address, zip, birth_date, sex,
       CASE WHEN origin < 0.66 THEN 'White' WHEN origin < 0.80 THEN 'Hispanic' WHEN origin < 0.90 THEN 'Black'
            WHEN origin < 0.97 THEN 'Asian' WHEN origin < 0.993 THEN 'Mixed' ELSE 'Native' END AS ethnicity,
       diagnosis,
       -- To the nearest 50: a cost to the cent would identify the patient.
       CAST(50 * ceil(mean_cost * (0.2 - 0.8 * ln(1 - dice($seed, person, 'cost'))) / 50) AS DECIMAL(9, 2)) AS cost
FROM ill ASOF JOIN diagnoses ON ill.who = diagnoses.who AND draw >= starts
ORDER BY person;

-- Three in four adults are registered, patients or not.
CREATE TABLE voters AS
SELECT name, address, zip, birth_date, sex
FROM people WHERE age >= 18 AND dice($seed, person, 'registered') < 0.75
ORDER BY name, address, person;
