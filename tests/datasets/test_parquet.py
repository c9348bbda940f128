"""Rows of Parquet files: completeness, types and error messages."""

import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.datasets import blocks as blocks_module
from pymc_geodesic.datasets import parquet_blocks
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import Buffers, DenseRows
from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

# Rows are numbered in order; the warning about ordered rows is disabled.
pytestmark = pytest.mark.filterwarnings("ignore:the rows of batches= are not in random order")

N = 1000
COLUMNS = {"X": ["a", "b"], "y": "label"}


def numbers(n=N):
    rng = np.random.default_rng(1)
    return {
        "a": np.arange(n, dtype="float32"),
        "b": rng.normal(size=n).astype("float32"),
        "label": rng.integers(-1, 2, size=n).astype("int8"),
        "name": np.array([f"row {i}" for i in range(n)]),
    }


def write(path, first=0, last=N, change=None, **settings):
    columns = {name: values[first:last] for name, values in numbers().items()}
    table = pa.table(columns)
    parquet.write_table(table if change is None else change(table), path, **settings)
    return path


@pytest.fixture
def folder(tmp_path):
    """Three files, of several row groups each."""
    path = tmp_path / "rows"
    path.mkdir()
    for i, (first, last) in enumerate([(0, 400), (400, 401), (401, N)]):
        write(path / f"{i}.parquet", first, last, row_group_size=150)
    return path


def read(blocks):
    return [{name: np.asarray(rows) for name, rows in block.items()} for block in blocks]


def check_all_rows(blocks):
    found, expected = read(blocks), numbers()
    X = np.concatenate([block["X"] for block in found])
    y = np.concatenate([block["y"] for block in found])
    order = np.argsort(X[:, 0])
    assert (X.dtype, y.dtype) == (np.float32, np.int8)
    np.testing.assert_array_equal(X[order], np.column_stack([expected["a"], expected["b"]]))
    np.testing.assert_array_equal(y[order], expected["label"])


@pytest.mark.parametrize("stretches", [1, 3])
@pytest.mark.parametrize("block_size", [150, 77, N])
def test_every_row_is_in_one_block(folder, block_size, stretches):
    blocks = parquet_blocks(folder, columns=COLUMNS, block_size=block_size, stretches=stretches)
    assert blocks.total_size == N
    check_all_rows(blocks)
    check_all_rows(pickle.loads(pickle.dumps(blocks)))


def test_one_file_and_files_in_the_order_given(folder):
    (block,) = parquet_blocks(folder / "1.parquet", columns="a", block_size=1)
    np.testing.assert_array_equal(np.asarray(block[0]), [400.0])
    files = [folder / "2.parquet", str(folder / "0.parquet")]
    found = np.concatenate([x for (x,) in parquet_blocks(files, columns="a", block_size=100)])
    np.testing.assert_array_equal(found, [*range(401, N), *range(400)])


def test_shapes(folder):
    shapes = [
        next(iter(parquet_blocks(folder, columns=columns, block_size=10)))[0].shape
        for columns in ("a", ["a"], ["b", "a", "label"])
    ]
    assert shapes == [(10,), (10, 1), (10, 3)]


def test_columns_in_the_names_of_folders(tmp_path):
    for year in (2021, 2020):
        (tmp_path / f"year={year}").mkdir()
        write(tmp_path / f"year={year}" / "part.parquet", 0, 3)
    ((rows,),) = parquet_blocks(tmp_path, columns=["year", "a"], block_size=6)
    expected = [[2020, 0], [2020, 1], [2020, 2], [2021, 0], [2021, 1], [2021, 2]]
    np.testing.assert_array_equal(np.asarray(rows), expected)


def test_a_dataset_of_pyarrow(folder):
    dataset = pytest.importorskip("pyarrow.dataset")
    check_all_rows(parquet_blocks(dataset.dataset(folder), columns=COLUMNS, block_size=300))


def gone(folder):
    (folder / "2.parquet").unlink()


def shorter(folder):
    write(folder / "2.parquet", 401, 500)


def without_a_label(folder):
    def erase(table):
        labels = [None if i == 7 else 1 for i in range(len(table))]
        return table.set_column(2, "label", pa.array(labels, pa.int8()))

    write(folder / "2.parquet", 401, N, erase, row_group_size=150)


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (gone, FileNotFoundError, r"2\.parquet"),
        (shorter, ValueError, r"2\.parquet had 599 rows and has 99 now"),
        (without_a_label, ValueError, r"'label' has no value in row 7 of .*2\.parquet"),
    ],
)
def test_changed_files_raise(folder, spoil, kind, message):
    blocks = parquet_blocks(folder, columns=COLUMNS, block_size=300)
    spoil(folder)
    with pytest.raises(kind, match=message):
        read(blocks)


def test_text_column_in_a_later_file_raises(folder):
    write(folder / "2.parquet", 401, N, lambda table: table.set_column(1, "b", table["name"]))
    with pytest.raises(ValueError, match=r"2\.parquet do not match .* b has incompatible types"):
        parquet_blocks(folder, columns=COLUMNS, block_size=300)


def test_a_column_that_a_later_file_lacks_has_missing_values(folder):
    write(folder / "2.parquet", 401, N, lambda table: table.drop(["b", "label"]))
    blocks = parquet_blocks(folder, columns="b", block_size=N)
    ((rows,),) = [[np.asarray(rows) for rows in block] for block in blocks]
    assert np.isnan(rows).sum() == 599
    with pytest.raises(ValueError, match=r"'label' has no value in row 0 of .*2\.parquet"):
        read(parquet_blocks(folder, columns=COLUMNS, block_size=300))


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [
        ("int32", "int64", 2**33 + 5),
        ("int8", "int64", 300),
        ("int32", "uint32", 2**32 - 1),
        ("float32", "float64", 1e300),
    ],
)
def test_wider_types_of_later_files_are_kept(tmp_path, first, later, value):
    for name, number, dtype in (("0", 1, first), ("1", value, later)):
        table = pa.table({"y": np.array([number], dtype)})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    ((rows,),) = parquet_blocks(tmp_path, columns="y", block_size=2)
    assert np.asarray(rows).tolist() == [1, value]


def test_integers_without_a_common_type_raise(tmp_path):
    for name, number, dtype in (("0", 1, "int64"), ("1", 2**63 + 1, "uint64")):
        table = pa.table({"y": np.array([number], dtype)})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"9223372036854775809 not in range"):
        [np.asarray(rows) for (rows,) in parquet_blocks(tmp_path, columns="y", block_size=2)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "c"], "has no column 'c'; its columns are"),
        ({"X": ["a"], "y": "name"}, "'name' of the table is not numeric"),
        (None, "'name' of the table is not numeric"),
        ([], "columns= is empty"),
        ({}, "columns= is empty"),
    ],
)
def test_invalid_columns_raise(folder, columns, message):
    with pytest.raises(ValueError, match=message):
        parquet_blocks(folder, columns=columns, block_size=10)


def test_missing_pyarrow_raises(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(blocks_module, "import_module", missing)
    with pytest.raises(ImportError, match=r"pyarrow\. .* pip install 'pymc_geodesic\[parquet\]'"):
        parquet_blocks("rows", block_size=1)


FORMAT = BlockFormat([DenseRows("X", "float64", (2,)), DenseRows("y", "int64", ())])


def source_of(blocks):
    source = StreamedBlocks(
        blocks, FORMAT, N, batch_size=10, order="shuffled", draws_per_block=None
    )
    source.reset(3)
    return source


def take(source):
    rows = np.concatenate([np.arange(start, start + 10) for start in source.next_starts(5)])
    return np.column_stack([source.arrays["X"][rows], source.arrays["y"][rows]])


def test_rows_of_files_are_in_the_order_of_rows_in_memory(folder):
    """From the same seed, and from a saved state."""
    columns = numbers()
    X = np.column_stack([columns["a"], columns["b"]])
    in_memory = [
        {"X": X[i : i + 300], "y": columns["label"][i : i + 300]} for i in range(0, N, 300)
    ]
    blocks = parquet_blocks(folder, columns=COLUMNS, block_size=300)
    source, reference = source_of(blocks), source_of(in_memory)
    for _ in range(13):
        np.testing.assert_array_equal(take(source), take(reference))
    again = source_of(blocks)
    again.state = pickle.loads(pickle.dumps(source.state))
    for _ in range(13):
        np.testing.assert_array_equal(take(again), take(source))


def test_nan_rows_raise_with_their_file(tmp_path):
    values = numbers()
    values["b"] = values["b"].copy()
    values["b"][407] = np.nan
    for i in range(2):
        columns = {name: each[500 * i : 500 * (i + 1)] for name, each in values.items()}
        parquet.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    blocks = parquet_blocks(
        [tmp_path / "1.parquet", tmp_path / "0.parquet"], columns=COLUMNS, block_size=300
    )
    message = r"NaN for 'X' in block 4, row 407 of .*0\.parquet; drop or impute"
    with pytest.raises(ValueError, match=message):
        [take(source) for source in [source_of(blocks)] for _ in range(40)]
    with pytest.raises(ValueError, match=message):
        list(source_of(blocks).all_rows())


def test_sampling_in_processes_agrees_with_one(folder):
    """With forks of a process that has read from the files."""
    blocks = parquet_blocks(folder, columns=COLUMNS, block_size=300)
    read(blocks)
    with pm.Model():
        X, y = pm.Data("X", np.zeros((1, 2))), pm.Data("y", np.zeros(1))
        w = pm.Normal("w", 0.0, 1.0)
        pm.Normal("y_obs", w * X[:, 1], 1.0, observed=y)
        draws = [
            pm.sample(
                draws=20,
                tune=0,
                chains=2,
                cores=cores,
                random_seed=1,
                progressbar=False,
                compute_convergence_checks=False,
                step=pg.SGGMC(
                    minibatch=["X", "y"],
                    batches=blocks,
                    batch_size=20,
                    step_size=1e-2,
                    friction=10.0,
                    compile_kwargs={"mode": "FAST_COMPILE"},
                ),
            ).posterior["w"]
            for cores in (1, 2)
        ]
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_containers_of_narrow_types_raise(dtype):
    rows = DenseRows("y", dtype, ())
    part = rows.accept(np.array([1, 300]))
    laid_out = (
        rows.lay_out([part], positions, 2, Buffers(), "block 0")
        for positions in (None, np.array([1, 0]))
    )
    if dtype == "int8":
        with pytest.raises(ValueError, match=r"int64 values for 'y' that overflow int8, .* in blo"):
            next(laid_out)
    else:
        assert [found["y"].tolist() for found, _ in laid_out] == [[1, 300], [300, 1]]


def test_masked_blocks_raise():
    with pytest.raises(ValueError, match=r"missing values \(NaN or masked\) for 'y'"):
        DenseRows("y", "float64", ()).accept(np.ma.masked_equal([1.0, 9.0], 9.0))
