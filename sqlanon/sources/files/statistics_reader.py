"""Read a file of SPSS, Stata or SAS in a separate process: a broken file can crash the library that reads it.

`statistics_files` runs this file as a script. Its standard output has a line of JSON that describes the file, then the
rows as an Arrow stream: each numeric variable as DOUBLE, next to it the letter of a missing code, and where it has
value labels, the label. An error is a text on standard error, and exit status 3.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any

FAILED = 3
"""The exit status for a file that cannot be read."""


class ReadingError(Exception):
    """The reason why a file cannot be read, without its values."""


def read(path: str, kind: str, **options: Any) -> tuple[Mapping[str, list[Any]], Any]:
    """Read a part of a file: its columns as lists, and their description."""
    import pyreadstat  # noqa: PLC0415

    functions = {
        "spss": pyreadstat.read_sav,
        "stata": pyreadstat.read_dta,
        "sas": pyreadstat.read_sas7bdat,
        "xport": pyreadstat.read_xport,
    }
    if kind != "xport":
        options["user_missing"] = True
    options |= {"output_format": "dict", "disable_datetime_conversion": True}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            data, description = functions[kind](path, **options)
    except pyreadstat.ReadstatError as error:
        advice = "; save it again as UTF-8" if re.search("encoding|character set|convert string", str(error)) else ""
        raise ReadingError(f"{error}{advice}") from None
    except Exception as error:  # its message may quote values
        raise ReadingError(type(error).__name__) from None
    if any("duplicated" in str(warning.message) for warning in caught):
        raise ReadingError("two columns have the same name; rename one")
    return data, description


def describe_variables(description: Any) -> dict[str, Any]:
    """Describe the variables of a file, for JSON."""
    variables = [
        {
            "name": name,
            "type": description.readstat_variable_types[name],
            "format": description.original_variable_types.get(name) or "",
            "labels": [[code, text] for code, text in (description.variable_value_labels.get(name) or {}).items()],
            "missing": [[interval["lo"], interval["hi"]] for interval in description.missing_ranges.get(name) or ()],
        }
        for name in description.column_names
    ]
    return {"variables": variables, "rows": description.number_rows}


def write_rows(path: str, kind: str, cells: int, variables: list[dict[str, Any]], out: Any) -> None:
    """Write the rows as an Arrow stream, in batches of about ``cells`` cells."""
    import pyarrow  # noqa: PLC0415

    text, double = pyarrow.string(), pyarrow.float64()
    fields = []
    for position, variable in enumerate(variables):
        is_text = variable["type"] == "string"
        fields.append((f"value {position}", text if is_text else double))
        fields += [] if is_text else [(f"letter {position}", text)]
        fields += [(f"label {position}", text)] if variable["labels"] else []
    schema = pyarrow.schema(fields)
    labels = [dict(map(tuple, variable["labels"])) for variable in variables]
    size, offset, rows = max(1, cells // len(variables)), 0, -1
    with pyarrow.ipc.new_stream(out, schema) as writer:
        while rows < 0 or rows == size:
            data, _ = read(path, kind, row_offset=offset, row_limit=size)
            columns: list[list[Any]] = []
            for variable, value_labels in zip(variables, labels, strict=True):
                columns += raw_columns(data[variable["name"]], variable["type"] == "string", value_labels)
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            rows = len(columns[0])
            offset += rows


def raw_columns(values: list[Any], is_text: bool, labels: Mapping[Any, str]) -> list[list[Any]]:
    """The values of a variable, the letters of its missing codes, and its labels."""
    label_columns = [[labels.get(value) or None for value in values]] if labels else []
    if is_text:
        return [[value or None for value in values], *label_columns]
    if not any(type(value) is str for value in values):
        return [values, [None] * len(values), *label_columns]
    numbers = [None if type(value) is str else value for value in values]
    return [numbers, [value if type(value) is str else None for value in values], *label_columns]


def main(path: str, kind: str, cells: str) -> int:
    """Describe a file and write its rows."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the output of the library out of the rows
    try:
        _, description = read(path, kind, metadataonly=True)
        header = describe_variables(description)
        out.write(json.dumps(header).encode() + b"\n")
        out.flush()
        if header["variables"]:
            write_rows(path, kind, int(cells), header["variables"], out)
        out.close()
    except ReadingError as error:
        os.write(2, f"\n{error}".encode())
        return FAILED
    return 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[-3:]))  # at once: the reader of the rows may be gone
