"""Arrays in files: by path or as they were opened, with no file left open, named where gone."""

import pickle
import shutil

import h5py
import numpy as np
import pytest

from pymc_geodesic.datasets import row_blocks
from pymc_geodesic.datasets.stored import rows as stored_rows
from pymc_geodesic.datasets.stored.rows import StoredRows

N = 20_000
X = np.arange(3.0 * N, dtype="float32").reshape(N, 3)


def npy(folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def opened_npy(folder):
    return np.load(npy(folder), mmap_mode="r")


def hdf5(folder):
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("deep/X", data=X, chunks=(1000, 3))
    return folder / "rows.h5" / "deep" / "X"


def opened_hdf5(folder):
    hdf5(folder)
    return h5py.File(folder / "rows.h5", "r")["deep/X"]


def zarr(folder):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "rows.zarr", mode="w")
    group.create_array("X", data=X, chunks=(3000, 3))
    return folder / "rows.zarr" / "X"


def opened_zarr(folder):
    return pytest.importorskip("zarr").open_array(zarr(folder), mode="r")


KINDS = [npy, opened_npy, hdf5, opened_hdf5, zarr, opened_zarr]


def read(blocks):
    return np.concatenate([np.asarray(rows) for (rows,) in blocks])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_files(tmp_path, kind):
    blocks = row_blocks(kind(tmp_path), block_size=7000)
    np.testing.assert_array_equal(read(blocks), X)
    assert read(blocks).dtype == np.float32
    pickled = pickle.dumps(blocks)
    assert len(pickled) < 5000 < X.nbytes
    np.testing.assert_array_equal(read(pickle.loads(pickled)), X)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_named(tmp_path, kind):
    (rows,) = list(row_blocks(kind(tmp_path), block_size=7000, stretches=2))[1]
    assert np.asarray(rows)[3600, 0] == 3 * 13_600
    found = rows.origin(3600)
    assert found.startswith("row 13600 of ")
    assert str(tmp_path) in found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_gone_is_named(tmp_path, kind):
    blocks = row_blocks(kind(tmp_path), block_size=7000)
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        read(blocks)


@pytest.mark.parametrize("kind", [npy, hdf5])
def test_what_is_shorter_is_named(tmp_path, kind):
    blocks = row_blocks(kind(tmp_path), block_size=7000)
    if kind is npy:
        np.save(tmp_path / "X.npy", X[:100])
    else:
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["deep/X"] = X[:100]
    with pytest.raises(ValueError, match=rf"{tmp_path}.* 100 .*make the blocks again"):
        read(blocks)


def test_every_kind_says_where_its_rows_are(tmp_path):
    for kind in KINDS:
        (rows,) = next(iter(row_blocks(kind(tmp_path), block_size=N)))
        assert isinstance(rows._array, StoredRows)


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("rows.csv", ValueError, "no path of an array"),
        ("rows.parquet", ValueError, "for Parquet files there is parquet_blocks"),
        ("none.npy", FileNotFoundError, r"none\.npy"),
        ("none.zarr/X", FileNotFoundError, r"none\.zarr"),
        ("none.h5/X", FileNotFoundError, r"none\.h5"),
        ("rows.h5", ValueError, r"no data set ''; name one of \['deep'\]"),
        ("rows.h5/deep", ValueError, r"no data set 'deep'; name one of \['X'\]"),
        ("rows.h5/Y", ValueError, r"no data set 'Y'; name one of \['deep'\]"),
        ("rows.zarr", ValueError, r"is a group; name one of its arrays \['X'\]"),
    ],
)
def test_wrong_paths(tmp_path, path, kind, message):
    hdf5(tmp_path), zarr(tmp_path)
    with pytest.raises(kind, match=message):
        row_blocks(tmp_path / path, block_size=10)


def test_zarr_that_is_not_installed(tmp_path, monkeypatch):
    path = zarr(tmp_path)

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(stored_rows, "import_module", missing)
    with pytest.raises(ImportError, match=r"zarr; .* pip install 'pymc_geodesic\[zarr\]'"):
        row_blocks(path, block_size=10)
