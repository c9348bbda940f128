"""Shuffling on disk: uniform permutations, completeness and bounded memory."""

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy import sparse, stats

from pymc_geodesic.datasets import parquet_blocks, shuffle_rows
from pymc_geodesic.datasets import shuffle as shuffle_module
from pymc_geodesic.datasets.shuffle import bucket_sizes

N = 1000
LITTLE = 6000
"""Bytes of memory for a thousand small rows: some forty buckets."""


def rows_of(n=N):
    """A row number, and values that depend on it."""
    number = np.arange(n, dtype="int32")
    return {"number": number, "X": np.column_stack([number, -number]).astype("float32")}


def new_order(folder, n=N, *, random_seed=1, memory=LITTLE):
    """Row numbers of a file in its new order."""
    source, target = folder / "old.npy", folder / f"new-{random_seed}-{memory}.npy"
    if not source.exists():
        np.save(source, np.arange(n))
    shuffle_rows(source, target, random_seed=random_seed, memory=memory, progressbar=False)
    order = np.load(target)
    target.unlink()
    return order


def in_files(folder):
    arrays = rows_of()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    new = [folder / f"new-{name}.npy" for name in arrays]

    def read():
        return {name: np.load(path) for name, path in zip(arrays, new, strict=True)}

    return [folder / f"{name}.npy" for name in arrays], new, read


def in_parquet(folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    number = rows_of()["number"]
    (folder / "old").mkdir()
    for i, part in enumerate(np.split(number, [10, 600])):
        X = part.astype("float32")
        table = pa.table({"number": part, "X0": X, "X1": -X, "text": [f"row {k}" for k in part]})
        parquet.write_table(table, folder / "old" / f"{i}.parquet", row_group_size=90)

    def read():
        table = parquet.read_table(folder / "new")
        assert table.schema.equals(parquet.read_schema(folder / "old" / "0.parquet"))
        number = table["number"].to_numpy()
        assert table["text"].to_pylist() == [f"row {k}" for k in number]
        X = np.column_stack([table["X0"].to_numpy(), table["X1"].to_numpy()])
        return {"number": number, "X": X}

    return folder / "old", folder / "new", read


KINDS = [in_files, in_parquet]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_permuted(tmp_path, kind):
    source, target, read = kind(tmp_path)
    shuffle_rows(source, target, random_seed=1, memory=20 * LITTLE, progressbar=False)
    found, expected = read(), rows_of()
    assert {name: array.dtype for name, array in found.items()} == {
        name: array.dtype for name, array in expected.items()
    }
    order = found["number"]
    np.testing.assert_array_equal(np.sort(order), expected["number"])
    np.testing.assert_array_equal(found["X"], expected["X"][order])
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("kind", KINDS)
def test_order_is_that_of_independent_keys(tmp_path, kind):
    """For any type of file and number of buckets."""
    expected = np.argsort(np.random.PCG64(5).random_raw(N), kind="stable")
    source, _, _ = kind(tmp_path)
    if kind is in_files:
        for memory in (LITTLE, 3 * LITTLE, 2**30):
            np.testing.assert_array_equal(
                new_order(tmp_path, random_seed=5, memory=memory), expected
            )
    _, target, read = kind_again(kind, tmp_path)
    shuffle_rows(source, target, random_seed=5, memory=50 * LITTLE, progressbar=False)
    np.testing.assert_array_equal(read()["number"], expected)


def kind_again(kind, folder):
    (folder / "again").mkdir()
    return kind(folder / "again")


def positions(folder, shuffles, n):
    return np.array([new_order(folder, n, random_seed=seed) for seed in range(shuffles)])


def p_of_orders(orders):
    """P-value of the hypothesis that the orders of four rows are equally likely."""
    names = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    counts = np.bincount([names[tuple(order)] for order in orders.tolist()], minlength=24)
    return stats.chisquare(counts).pvalue


def p_of_positions(orders):
    """P-value of the hypothesis that each row is in each tenth of the positions equally often."""
    tenths = np.argsort(orders, axis=1) * 10 // orders.shape[1]
    rows = np.arange(orders.shape[1]) * 10 // orders.shape[1]
    counts = np.zeros((10, 10))
    np.add.at(counts, (np.broadcast_to(rows, tenths.shape), tenths), 1)
    expected = orders.size / 100
    # The margins of the table are fixed.
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), 81)


def direct(n_shuffles, n, memory=LITTLE):
    """Orders without files: the buckets and their order, as in `shuffle_rows`."""
    orders = []
    for seed in range(n_shuffles):
        keys = np.random.PCG64(seed).random_raw(n)
        bucket = shuffle_module.assign_buckets(keys, bucket_sizes(n, 8, memory)[0])
        rows = [np.flatnonzero(bucket == b) for b in np.unique(bucket)]
        orders.append(np.concatenate([each[shuffle_module.key_order(keys[each])] for each in rows]))
    return np.array(orders)


def test_all_orders_of_four_rows_are_equally_likely():
    assert p_of_orders(direct(4800, 4, memory=1000)) > 1e-4


def test_all_positions_are_equally_likely_for_all_rows(tmp_path):
    assert bucket_sizes(N, 8, LITTLE)[0] > 10
    assert p_of_positions(direct(200, N)) > 1e-4
    np.testing.assert_array_equal(direct(2, N), positions(tmp_path, 2, N))


def as_they_were(keys):
    return np.arange(len(keys))


def from_the_front(keys, n_buckets):
    """Rows that are assigned to the buckets cyclically."""
    return (np.arange(len(keys)) * n_buckets // max(len(keys), 1)).astype(np.uint16)


@pytest.mark.parametrize(
    ("name", "mutant"), [("key_order", as_they_were), ("assign_buckets", from_the_front)]
)
def test_mutants_of_the_shuffle_are_detected(monkeypatch, name, mutant):
    monkeypatch.setattr(shuffle_module, name, mutant)
    assert min(p_of_orders(direct(480, 4, memory=1000)), p_of_positions(direct(50, N))) < 1e-10


def test_unshuffled_bucket_is_detected(tmp_path, monkeypatch):
    """The same mutant in the files."""
    monkeypatch.setattr(shuffle_module, "key_order", as_they_were)
    order = new_order(tmp_path)
    np.testing.assert_array_equal(np.sort(order), np.arange(N))
    expected = np.argsort(np.random.PCG64(1).random_raw(N))
    assert not np.array_equal(order, expected)


def test_seeds(tmp_path):
    first = new_order(tmp_path, random_seed=1)
    assert not np.array_equal(first, new_order(tmp_path, random_seed=2))
    np.testing.assert_array_equal(first, new_order(tmp_path, random_seed=1))
    unseeded = [new_order(tmp_path, random_seed=None) for _ in range(2)]
    assert not np.array_equal(*unseeded)
    drawn = [new_order(tmp_path, random_seed=np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(*drawn)


def test_memory(tmp_path):
    """Peak allocations of NumPy; the data are nine times as large."""
    memory = 2**20
    rows = np.zeros((125_000, 20), "float32")
    np.save(tmp_path / "rows.npy", rows)
    assert rows.nbytes > 9 * memory
    del rows
    tiny = np.zeros((3, 20), "float32")
    shuffle_rows(tiny, tmp_path / "warm.npy", progressbar=False)
    tracemalloc.start()
    shuffle_rows(tmp_path / "rows.npy", tmp_path / "new.npy", memory=memory, progressbar=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < memory + 2**18


def _tiny_table(folder):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"x": [1]}), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.mark.slow
def test_memory_of_tables(tmp_path):
    """Peak allocations of Arrow and Python."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    memory = 2**22
    table = pa.table({f"x{j}": np.random.default_rng(j).random(200_000) for j in range(10)})
    assert table.nbytes > 3 * memory
    parquet.write_table(table, tmp_path / "old.parquet", row_group_size=2000)
    del table
    shuffle_rows(_tiny_table(tmp_path), tmp_path / "warm.parquet", progressbar=False)
    pool, own = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(own)
    tracemalloc.start()
    try:
        shuffle_rows(
            tmp_path / "old.parquet",
            tmp_path / "new.parquet",
            memory=memory,
            progressbar=False,
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)
    assert 0.2 * memory < own.max_memory() + peak < memory + 2**18
    assert parquet.read_metadata(tmp_path / "new.parquet").num_rows == 200_000


@pytest.mark.parametrize("n_rows", [1, 10, 10**6, 10**9])
@pytest.mark.parametrize("row_bytes", [1, 116, 5000])
def test_the_largest_bucket_fits(n_rows, row_bytes):
    memory = 2**28
    n_buckets, _ = bucket_sizes(n_rows, row_bytes, memory)
    mean = n_rows / n_buckets
    assert (mean + 5.9 * np.sqrt(mean)) * (row_bytes + 32) < 0.76 * memory or n_buckets == 1
    if n_buckets > 1:
        assert 2 * mean * (row_bytes + 32) > 0.5 * memory


def test_failure_leaves_no_files(tmp_path, monkeypatch):
    np.save(tmp_path / "old.npy", np.arange(N))

    def broken(keys):
        raise OSError("no space left on device")

    monkeypatch.setattr(shuffle_module, "key_order", broken)
    with pytest.raises(OSError, match="no space left"):
        shuffle_rows(tmp_path / "old.npy", tmp_path / "new.npy", progressbar=False)
    assert [path.name for path in tmp_path.iterdir()] == ["old.npy"]


@pytest.mark.parametrize("kind", KINDS)
def test_existing_targets_raise(tmp_path, kind):
    source, target, _ = kind(tmp_path)
    first = target[1] if isinstance(target, list) else target
    first.write_text("mine")
    with pytest.raises(FileExistsError, match=r"exists\. Name another target"):
        shuffle_rows(source, target, progressbar=False)
    assert first.read_text() == "mine"


def test_columns_in_the_names_of_folders_are_kept(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for year in (2020, 2021):
        (tmp_path / "old" / f"year={year}").mkdir(parents=True)
        parquet.write_table(pa.table({"x": [year] * 5}), tmp_path / f"old/year={year}/a.parquet")
    shuffle_rows(tmp_path / "old", tmp_path / "new", random_seed=1, progressbar=False)
    ((rows,),) = parquet_blocks(tmp_path / "new", columns=["x", "year"], block_size=10)
    rows = np.asarray(rows)
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
    np.testing.assert_array_equal(np.sort(rows[:, 0]), np.repeat([2020, 2021], 5))


def test_wider_types_and_additional_columns_are_kept(tmp_path):
    """Wider types of later files, and columns that the first file does not have."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    old = tmp_path / "old"
    old.mkdir()
    parquet.write_table(pa.table({"x": np.ones(1, "f4")}), old / "0.parquet")
    later = pa.table({"x": np.array([1e300]), "y": np.zeros(1, "i2")})
    parquet.write_table(later, old / "1.parquet", compression="zstd")
    shuffle_rows(old, tmp_path / "new.parquet", random_seed=1, progressbar=False)
    rows = parquet.read_table(tmp_path / "new.parquet").to_pylist()
    assert sorted(rows, key=lambda row: row["x"]) == [{"x": 1.0, "y": None}, {"x": 1e300, "y": 0}]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_parquet_keeps_compression(tmp_path, compression):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pa.table({"x": np.ones(9)}), tmp_path / "old.parquet", compression=compression
    )
    shuffle_rows(tmp_path / "old.parquet", tmp_path / "new.parquet", progressbar=False)
    found = [
        parquet.read_metadata(tmp_path / f"{name}.parquet").row_group(0).column(0).compression
        for name in ("old", "new")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("source", "target", "settings", "message"),
    [
        (np.zeros(9), "new.txt", {}, "do not match 1 arrays. Name one .npy file for each"),
        (np.zeros(9), "new.npy", {"memory": 10}, "memory=10 is too small for 9 rows"),
        (np.zeros(0), "new.npy", {}, "no rows to shuffle"),
        (np.float64(1.0), "new.npy", {}, "no rows"),
        (np.ma.masked_equal([1.0, 999.0], 999.0), "new.npy", {}, "1 values .* are masked"),
        (np.array([None, "x"]), "new.npy", {}, "Python objects"),
        (sparse.eye_array(3), "new.npy", {}, "does not take sparse matrices"),
        ([np.zeros(2), np.zeros(3)], ["a.npy", "b.npy"], {}, "different numbers of rows"),
        ([np.zeros(2), np.zeros(2)], "new.npy", {}, "do not match 2 arrays"),
        ([np.zeros(2), np.zeros(2)], ["a.npy", "b.npy", "c.npy"], {}, "do not match 2 arrays"),
        ([np.zeros(2), np.zeros(2)], ["a.npy", "b.h5"], {}, "do not match 2 arrays"),
        ("rows.parquet", "new.npy", {}, "do not match Parquet files"),
    ],
)
def test_invalid_arguments_raise(tmp_path, monkeypatch, source, target, settings, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        shuffle_rows(source, target, progressbar=False, **settings)
    assert not list(tmp_path.iterdir())


def test_progress_is_shown(tmp_path, capsys):
    shuffle_rows(np.zeros(9), tmp_path / "new.npy")
    assert "rows written" in capsys.readouterr().out
