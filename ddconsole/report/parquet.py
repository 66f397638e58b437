"""All cells as Parquet, by arro3: Arrow's Rust implementation, twelve megabytes where pyarrow is forty."""

import io
import json
from collections.abc import Sequence

from ddconsole.report.cell_fields import Field, cell_fields
from ddconsole.report.export_place import ExportFailed
from ddconsole.report.result_set import ResultSet

_WHOLE_NUMBERS = frozenset(
    {"output_tokens", "acceptance_tokens", "acceptance_steps", "cached_tokens", "concurrency", "max_tokens"}
)
"""Columns of whole numbers also where no cell knows them."""


def parquet_bytes(result: ResultSet) -> bytes:
    """One row a cell, columns as in `results.csv` with their types; what is not known is null.

    Raises:
        ExportFailed: arro3 is not installed.
    """
    try:
        from arro3.core import Array, DataType, Table  # noqa: PLC0415  # an extra: only who wants Parquet has it
        from arro3.io import write_parquet  # noqa: PLC0415
    except ImportError:
        raise ExportFailed(
            "Parquet needs the package arro3-io, which is not installed; pip install 'ddconsole[parquet]', "
            "or take csv or jsonl: they have the same columns"
        ) from None
    types = {bool: DataType.bool(), int: DataType.int64(), float: DataType.float64(), str: DataType.utf8()}
    rows = [cell_fields(result, cell) for cell in result.cells]
    names = list(rows[0]) if rows else []
    arrays = []
    for name in names:
        values = [row[name] for row in rows]
        kind = column_type(name, values)
        arrays.append(Array([_as(kind, value) for value in values], types[kind]))
    about = {"run": result.run, "plan": result.plan_name, "result_set_sha256": result.sha256}
    table = Table.from_arrays(arrays, names=names)
    file = io.BytesIO()
    write_parquet(
        table,
        file,
        compression="SNAPPY",
        created_by="ddconsole",
        # Of several keys arro3 writes any first: with one, the same results give the same bytes.
        key_value_metadata={"ddconsole": json.dumps(about)},
        skip_arrow_metadata=True,
    )
    return file.getvalue()


def column_type(name: str, values: Sequence[Field]) -> type[bool] | type[int] | type[float] | type[str]:
    """The type of a column: of its values; numbers where no cell knows it."""
    known = {type(value) for value in values if value is not None}
    if not known:
        return int if name in _WHOLE_NUMBERS else float
    for kind in (str, float, int):
        if kind in known:
            return kind
    return bool


def _as(kind: type, value: Field) -> Field:
    if value is None:
        return None
    return _text(str(value)) if kind is str else kind(value)


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
