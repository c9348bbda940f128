"""Rows of Parquet files in random order, with all their columns and types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pymc_geodesic.datasets.shuffling.arrays import Advance
from pymc_geodesic.datasets.shuffling.keys import Buckets, RandomKeys, bucket_of, order_of, ranges
from pymc_geodesic.datasets.stored.parquet import ParquetTable
from pymc_geodesic.datasets.stored.rows import PIECE, needed_module

__all__ = ["shuffle_table"]

_KEY = "key of pymc_geodesic"


def shuffle_table(
    table: ParquetTable,
    schema: Any,
    hidden: Path,
    scratch: Path,
    keys: RandomKeys,
    memory: int,
    advance: Advance,
    *,
    one_file: bool,
) -> None:
    """Write the rows of Parquet files in the order of their keys.

    Parameters
    ----------
    table : ParquetTable
    schema : pyarrow.Schema
        Of all columns.
    hidden : Path
        File or folder to write to; a folder gets a file for each bucket.
    scratch : Path
        File for the buckets.
    keys : RandomKeys
    memory : int
        Bytes; rows with texts of unequal length are taken to be as long as the first of each file.
    advance : callable
        Called with the number of rows that were read, and again when they are written.
    one_file : bool
    """
    pyarrow = needed_module("pyarrow", "parquet", "Shuffling Parquet files")
    parquet = needed_module("pyarrow.parquet", "parquet", "Shuffling Parquet files")
    # The rows of a bucket are taken from it as a copy, and its parts are joined before.
    buckets = Buckets(table.n_rows, 2 * _row_bytes(table, schema), memory)
    piece = min(buckets.piece, PIECE)
    places: list[list[tuple[int, int]]] = [[] for _ in range(buckets.number)]
    with scratch.open("w+b") as file:
        for rows, number in _scattered(table, schema, keys, buckets.number, piece, advance):
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_table(rows)
            places[number].append((file.tell(), file.write(sink.getvalue())))
        if not one_file:
            hidden.mkdir()
        settings = {"compression": _compression(table)}
        path = hidden if one_file else hidden / "part-00000.parquet"
        writer = parquet.ParquetWriter(path, schema, **settings)
        try:
            for number, parts in enumerate(places):
                if number and not one_file:
                    writer.close()
                    path = hidden / f"part-{number:05d}.parquet"
                    writer = parquet.ParquetWriter(path, schema, **settings)
                if parts:
                    _write_bucket(pyarrow, file, parts, writer, buckets.piece, advance)
        finally:
            writer.close()
    scratch.unlink()


def _write_bucket(
    pyarrow: Any,
    file: Any,
    parts: list[tuple[int, int]],
    writer: Any,
    piece: int,
    advance: Advance,
) -> None:
    tables = []
    for offset, length in parts:
        file.seek(offset)
        tables.append(pyarrow.ipc.open_stream(file.read(length)).read_all())
    rows = pyarrow.concat_tables(tables).unify_dictionaries().combine_chunks()
    tables.clear()
    order = order_of(rows.column(_KEY).to_numpy())
    rows = rows.drop_columns([_KEY])
    for start, stop in ranges(len(rows), piece):
        writer.write_table(rows.take(order[start:stop]), row_group_size=stop - start)
        advance(stop - start)


def _scattered(
    table: ParquetTable,
    schema: Any,
    keys: RandomKeys,
    n_buckets: int,
    piece: int,
    advance: Advance,
) -> Iterator[tuple[Any, int]]:
    """Rows of a piece that go to the same bucket, with their keys; and which bucket."""
    pyarrow = needed_module("pyarrow", "parquet", "Shuffling Parquet files")
    generator = keys.generator()
    for rows in _batches(table, schema, piece):
        part = generator.random_raw(len(rows))
        bucket = bucket_of(part, n_buckets)
        order = np.argsort(bucket, kind="stable")
        rows = rows.append_column(_KEY, pyarrow.array(part)).take(order)
        ends = np.cumsum(np.bincount(bucket, minlength=n_buckets))
        for number in np.unique(bucket):
            first = int(ends[number - 1]) if number else 0
            yield rows.slice(first, int(ends[number]) - first), int(number)
        advance(len(rows))


def _batches(table: ParquetTable, schema: Any, piece: int) -> Iterator[Any]:
    """Rows of all files in their order, in small tables of one schema."""
    pyarrow = needed_module("pyarrow", "parquet", "Shuffling Parquet files")
    for file in table.files:
        with table.opened(file) as opened:
            for batch in opened.iter_batches(piece, use_threads=False):
                rows = pyarrow.Table.from_batches([batch])
                for name, value in file.constants.items():
                    rows = rows.append_column(name, pyarrow.repeat(value, len(rows)))
                if missing := set(schema.names) - set(rows.column_names):
                    raise ValueError(
                        f"{file.path} has no column {min(missing)!r}, which other files have; "
                        "write all files with the same columns"
                    )
                _refuse_rounding(pyarrow, rows.schema, schema, file.path)
                yield rows.select(schema.names).cast(schema)


def _refuse_rounding(pyarrow: Any, own: Any, schema: Any, path: str) -> None:
    """Raise where numbers would be rounded, which is the one cast that says nothing of it."""
    for field in schema:
        kind = own.field(field.name).type
        if not (pyarrow.types.is_floating(kind) and pyarrow.types.is_floating(field.type)):
            continue
        if kind.bit_width > field.type.bit_width:
            raise ValueError(
                f"column {field.name!r} is {kind} in {path} and {field.type} in the first file; "
                "write all files with the same columns"
            )


def _row_bytes(table: ParquetTable, schema: Any) -> int:
    """Bytes of a row in memory, in the file where the first rows have most."""
    most = 1
    for file in table.files:
        first = ParquetTable([file], table.filesystem, table.dtypes)
        for rows in _batches(first, schema, 1000):
            most = max(most, -(-rows.nbytes // len(rows)))
            break
    return most


def _compression(table: ParquetTable) -> str:
    """How the first file is compressed."""
    with table.opened(table.files[0]) as opened:
        name = str(opened.metadata.row_group(0).column(0).compression).lower()
    return "none" if name == "uncompressed" else name
