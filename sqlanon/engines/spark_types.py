"""What Spark takes and gives as files and Arrow: types that it has not, and how much it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


def with_sign(table: pyarrow.Table) -> pyarrow.Table:
    """An Arrow table with types that Spark has: it knows no integers without a sign, and no views of texts.

    >>> import pyarrow
    >>> with_sign(pyarrow.table({"n": pyarrow.array([255], pyarrow.uint8())})).schema.field("n").type
    DataType(int16)
    """
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.string_view(): pa.string(),
        pa.binary_view(): pa.binary(),
    }
    fields = [field.with_type(wider.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def not_utf8(table: pyarrow.Table) -> list[str]:
    """The columns of an Arrow table with text that is not UTF-8: Spark takes any bytes for text.

    >>> import pyarrow
    >>> not_utf8(pyarrow.table({"a": ["ü"], "b": pyarrow.array([b"\\xff"]).view(pyarrow.string())}))
    ['b']
    """
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    def is_valid(column: pa.ChunkedArray) -> bool:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    texts = (field.name for field in table.schema if field.type in (pa.string(), pa.large_string()))
    return [name for name in texts if not is_valid(table[name])]


def rows_in(folder: Path) -> int:
    """How many rows the Parquet files of a folder have, by their footers; none, where there is no such folder.

    >>> rows_in(Path("/nowhere"))
    0
    """
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  (it is slow to load)

    return sum(int(read_metadata(file).num_rows) for file in folder.glob("*.parquet"))
