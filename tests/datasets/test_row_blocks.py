"""Row blocks contain every row once, and read only what they need."""

import pickle

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pymc_geodesic.datasets import row_blocks

N = 1003


@pytest.fixture
def memmap(tmp_path):
    """Numbers after a header, so that there is an offset."""
    path = tmp_path / "rows.bin"
    with path.open("wb") as file:
        file.write(b"header")
        np.arange(2 * N, dtype="float32").tofile(file)
    return np.memmap(path, "float32", mode="r", offset=6, shape=(N, 2))


def npy(folder, rows):
    np.save(folder / "X.npy", rows)
    return folder / "X.npy"


def opened_npy(folder, rows):
    return np.load(npy(folder, rows), mmap_mode="r")


def hdf5(folder, rows):
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("deep/X", data=rows, chunks=(1000, 3))
    return h5py.File(folder / "rows.h5", "r")["deep/X"]


def zarr(folder, rows):
    group = pytest.importorskip("zarr").open_group(folder / "rows.zarr", mode="w")
    return group.create_array("X", data=rows, chunks=(3000, 3))


def dask(folder, rows):
    return pytest.importorskip("dask.array").from_array(rows, chunks=(3000, 3))


STORED = np.arange(60_000, dtype="float32").reshape(20_000, 3)
FILES = [npy, opened_npy, hdf5]
"""Kinds of arrays that open their file for each read."""


def read(blocks):
    return [tuple(np.asarray(rows) for rows in block) for block in blocks]


@pytest.mark.parametrize("block_size", [10, 17, N])
@pytest.mark.parametrize("stretches", [1, 2, 7, N])
def test_every_row_is_in_one_block(block_size, stretches):
    rows = np.arange(N)
    blocks = row_blocks(rows, -rows, block_size=block_size, stretches=stretches)
    assert blocks.total_size == N
    seen = read(blocks)
    assert len(seen) == len(blocks)
    np.testing.assert_array_equal(np.sort(np.concatenate([x for x, _ in seen])), rows)
    for x, y in seen:
        np.testing.assert_array_equal(x, -y)
    if stretches == 1:
        assert [len(x) for x, _ in seen[:-1]] == [block_size] * (len(seen) - 1)


def test_tables_in_memory_are_rows_of_numbers():
    table = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    blocks = row_blocks(table, table["a"], block_size=2)
    first, _ = read(blocks)
    np.testing.assert_array_equal(first[0], [[1.0, 0.5], [2.0, 1.5]])
    np.testing.assert_array_equal(first[1], [1, 2])
    with pytest.raises(ValueError, match="Python objects has no numeric rows"):
        row_blocks(table.assign(c="red"), block_size=2)


def test_stretches_sample_all_positions():
    means = [x.mean() for (x,) in read(row_blocks(np.arange(1000), block_size=100, stretches=20))]
    np.testing.assert_allclose(means, 499.5, atol=25.0)


def test_blocks_of_a_file(memmap):
    first, second = read(row_blocks(memmap, block_size=600)), np.asarray(memmap)
    np.testing.assert_array_equal(np.concatenate([x for (x,) in first]), second)
    assert first[0][0].dtype == np.float32


def test_part_of_a_map_and_a_transposed_one_are_read_as_arrays(memmap):
    for array in (memmap[700:], memmap.T):
        seen = np.concatenate([x for (x,) in read(row_blocks(array, block_size=2))])
        np.testing.assert_array_equal(seen, array)


def test_pickles_contain_no_data(memmap):
    blocks = row_blocks(memmap, block_size=600)
    pickled = pickle.dumps(blocks)
    assert len(pickled) < 1000 < memmap.nbytes
    np.testing.assert_array_equal(read(pickle.loads(pickled))[0][0], memmap[:600])


def test_pieces_are_stored_chunks():
    class Chunked:
        """Count the rows that are read."""

        shape, dtype, chunks = (300_000,), np.dtype("int64"), (100_000,)

        def __init__(self):
            self.reads = []

        def __getitem__(self, rows):
            self.reads.append((rows.start, rows.stop))
            return np.arange(rows.start, rows.stop)

    store = Chunked()
    for (rows,) in row_blocks(store, block_size=150_000):
        np.asarray(rows)
    assert store.reads == [(0, 100_000), (100_000, 150_000), (150_000, 200_000), (200_000, 300_000)]


def sparse_maps(tmp_path, values_type="float32"):
    """A matrix of memory maps."""
    rows = sparse.random_array((N, 30), density=0.1, format="csr", rng=np.random.default_rng(1))
    arrays = (rows.data.astype(values_type), rows.indices, rows.indptr)
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
    maps = tuple(np.load(tmp_path / f"{i}.npy", mmap_mode="r") for i in range(3))
    return rows.astype(values_type), sparse.csr_array(maps, shape=rows.shape)


@pytest.mark.parametrize("stretches", [1, 3])
def test_sparse_matrix_of_memory_maps(tmp_path, stretches):
    """Small pickles, and the rows of dense blocks."""
    rows, mapped = sparse_maps(tmp_path)
    numbers = np.arange(N)
    blocks = row_blocks(mapped, numbers, block_size=300, stretches=stretches)
    pickled = pickle.dumps(row_blocks(mapped, block_size=300))
    assert len(pickled) < 2000 < mapped.data.nbytes
    for part, here in blocks:
        expected = rows[np.asarray(here)]
        assert part.shape == expected.shape
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part.indptr, expected.indptr)
        np.testing.assert_array_equal(part.tocsr().toarray(), expected.toarray())
        np.testing.assert_array_equal(np.asarray(part), expected.toarray())
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(
        np.concatenate([part.tocsr().toarray() for (part,) in again]), rows.toarray()
    )


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrix_in_memory(form):
    rows = sparse.random_array((N, 7), density=0.2, format=form, rng=np.random.default_rng(1))
    found = [part.tocsr().toarray() for (part,) in row_blocks(rows, block_size=400)]
    np.testing.assert_array_equal(np.concatenate(found), rows.toarray())


@pytest.mark.parametrize("kind", [*FILES, zarr, dask])
def test_stored_arrays(tmp_path, kind):
    blocks = row_blocks(kind(tmp_path, STORED), block_size=7000)
    for each in (blocks, pickle.loads(pickle.dumps(blocks))):
        found = np.concatenate([x for (x,) in read(each)])
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, STORED)


@pytest.mark.parametrize("kind", FILES)
def test_errors_name_the_file_and_the_row(tmp_path, kind):
    blocks = row_blocks(kind(tmp_path, STORED), block_size=7000, stretches=2)
    assert len(pickle.dumps(blocks)) < 5000 < STORED.nbytes
    (rows,) = list(blocks)[1]
    assert np.asarray(rows)[3600, 0] == 3 * 13_600
    assert rows.origin(3600).startswith("row 13600 of ")
    assert str(tmp_path) in rows.origin(3600)
    kind(tmp_path, STORED[:1000])
    with pytest.raises(ValueError, match=rf"{tmp_path}.*1000.*Create the row blocks again"):
        read(blocks)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        read(blocks)


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("rows.csv", ValueError, "not the path of an .npy file"),
        ("rows.parquet", ValueError, "read Parquet files with parquet_blocks"),
        ("rows.h5/X", ValueError, "Open arrays of HDF5 files with h5py"),
        ("none.npy", FileNotFoundError, r"none\.npy"),
    ],
)
def test_invalid_paths_raise(tmp_path, path, kind, message):
    with pytest.raises(kind, match=message):
        row_blocks(tmp_path / path, block_size=10)


@pytest.mark.parametrize(
    ("arrays", "arguments", "message"),
    [
        ([], {"block_size": 1}, "at least one array"),
        ([np.zeros(3), np.zeros(4)], {"block_size": 1}, r"numbers of rows: \[3, 4\]"),
        ([np.zeros(3)], {"block_size": 4}, "block_size must be an integer from 1 to 3, got 4"),
        ([np.zeros(3)], {"block_size": 1.5}, "block_size must be an integer"),
        ([np.zeros(3)], {"block_size": 1, "stretches": 0}, "stretches must be an integer from 1"),
        ([np.ma.masked_equal([0.0, 9.0], 9.0)], {"block_size": 1}, "1 values .* are masked"),
    ],
)
def test_invalid_arguments_raise(arrays, arguments, message):
    with pytest.raises(ValueError, match=message):
        row_blocks(*arrays, **arguments)
