-- The clinic of `sqlanon demo`: `patients`, some of the hospital's patients with a number, and `visits`, their visits of a
-- year. Parameters: $persons (the most patients) and $seed. The hospital is attached as `hospital`. Random numbers are
-- drawn as in demo_hospital.sql.

CREATE TEMP MACRO dice(seed, person, what) AS    -- uniform in [0, 1)
    (md5_number_lower(concat_ws('/', seed, person, what)) >> 11) / 9007199254740992;

CREATE TABLE patients AS
SELECT 100000 + row_number() OVER () AS patient_id, name, zip, birth_date, sex, diagnosis
FROM hospital.patients
LIMIT $persons;

-- Most patients come once. One in seven comes three times.
CREATE TABLE visits AS
WITH numbered AS (
    SELECT patient_id, CASE WHEN draw < 0.55 THEN 1 WHEN draw < 0.86 THEN 2 ELSE 3 END AS visits
    FROM (SELECT patient_id, dice($seed, patient_id, 'visits') AS draw FROM patients) AS draws
), drawn AS (
    SELECT patient_id, i, dice($seed, patient_id, concat('day', i)) AS day, dice($seed, patient_id, concat('ward', i)) AS ward
    FROM numbered, unnest(range(visits)) AS u(i)
)
SELECT
    500000 + row_number() OVER (ORDER BY patient_id, day) AS visit_id,
    patient_id,
    DATE '2025-01-01' + CAST(floor(365 * day) AS INTEGER) AS admitted,
    CASE WHEN ward < 0.4 THEN 'medicine' WHEN ward < 0.7 THEN 'surgery' WHEN ward < 0.85 THEN 'cardiology'
         WHEN ward < 0.95 THEN 'oncology' ELSE 'psychiatry' END AS ward
FROM drawn;
