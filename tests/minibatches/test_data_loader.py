"""The data loader of pymc_extras, over Parquet files, as an iterable of row blocks."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from tests.data_loader import load_data_loader

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

# Rows are in order, so that they can be identified; the warning is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:the rows of batches= are not in random order")

N, N_FEATURES, BATCH = 600, 2, 5


@pytest.fixture(scope="module")
def dataloader():
    return load_data_loader()


@pytest.fixture(scope="module")
def table():
    """Two features, a label, and the number of the row."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, N_FEATURES))
    return np.column_stack([X, np.where(X @ [1.0, -2.0] > 0.0, 1.0, -1.0), np.arange(N)])


@pytest.fixture(scope="module")
def source(dataloader, table, tmp_path_factory):
    """Three files, in which the rows are stored in groups of unequal lengths."""
    folder = tmp_path_factory.mktemp("shards")
    for i, (first, last) in enumerate([(0, 250), (250, 260), (260, N)]):
        columns = {f"x{j}": table[first:last, j] for j in range(N_FEATURES)}
        columns["y"] = table[first:last, 2].astype("int8")
        columns["number"] = table[first:last, 3].astype("int32")
        parquet.write_table(pyarrow.table(columns), folder / f"{i}.parquet", row_group_size=100)
    return dataloader.parquet_source(str(folder))


@pytest.fixture
def model():
    with pm.Model() as model:
        table = pm.Data("table", np.zeros((1, N_FEATURES + 2)))
        w = pm.Normal("w", shape=N_FEATURES)
        pg.Hinge("label", table[:, :N_FEATURES] @ w, observed=table[:, N_FEATURES])
    return model


def rows_of(model, batches, n_batches, *, batch_size=BATCH, names=("table",), **arguments):
    """Rows of the next minibatches, by their numbers and with all their columns."""
    rows = MinibatchArguments(
        batch_size=batch_size, minibatch=list(names), batches=batches, **arguments
    )
    found = minibatch_source(model, rows)
    found.reset(1)
    minibatches = []
    for _ in range(n_batches):
        (start,) = found.next_starts(1)
        # A copy, because a later block takes the memory of this one.
        minibatches.append(found.arrays["table"][start : start + found.batch_size].copy())
    return np.array(minibatches)


def test_every_row_once_in_an_epoch(dataloader, model, source, table):
    """The rows of a group are a block, whatever the batch size of the loader is."""
    loader = dataloader.DataLoader(source, batch_size=50)
    rows = rows_of(model, loader, 240).reshape(2, N, -1)
    for epoch in rows:
        order = np.argsort(epoch[:, -1])
        np.testing.assert_array_equal(epoch[order], table)
    assert not np.array_equal(rows[0], rows[1])


def test_batch_size_of_the_loader(dataloader, model, source, table):
    """Without one of the step; the loader itself yields the groups of the files."""
    assert {len(block) for block in dataloader.DataLoader(source, batch_size=40)} != {40}
    loader = dataloader.DataLoader(source, batch_size=40)
    rows = rows_of(model, loader, 30, batch_size=None)
    assert rows.shape == (30, 40, table.shape[1])
    rows = rows.reshape(-1, rows.shape[-1])
    numbers = rows[:, -1].astype(int)
    np.testing.assert_array_equal(rows, table[numbers])
    assert set(np.bincount(numbers, minlength=N)) <= {1, 2, 3}


@pytest.mark.parametrize("batch_size", [BATCH, None])
def test_shuffled_by_the_loader(dataloader, model, source, table, batch_size):
    """It drops the last incomplete batch: different rows in every epoch."""
    loader = dataloader.DataLoader(source, batch_size=40, shuffle=True, buffer_size=200, seed=1)
    n_batches = 20 * N // (batch_size or 40)
    rows = rows_of(model, loader, n_batches, batch_size=batch_size).reshape(-1, table.shape[1])
    numbers = rows[:, -1].astype(int)
    np.testing.assert_array_equal(rows, table[numbers])
    assert np.bincount(numbers, minlength=N).min() > 10
    assert not np.array_equal(numbers, np.sort(numbers))


@pytest.mark.slow
def test_draws_of_one_process_and_of_two(dataloader, model, source):
    with model:
        step = pg.SSGNHT(
            minibatch=["table"],
            batches=dataloader.DataLoader(source, batch_size=100),
            batch_size=BATCH,
            step_size=1e-3,
            diffusion=10.0,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
        draws = [
            pm.sample(
                draws=40,
                tune=10,
                chains=2,
                cores=cores,
                step=step,
                random_seed=1,
                progressbar=False,
                compute_convergence_checks=False,
                compile_kwargs={"mode": "FAST_COMPILE"},
            ).posterior["w"]
            for cores in (1, 2)
        ]
    np.testing.assert_array_equal(*draws)
    mean = draws[0].mean(("chain", "draw"))
    assert mean[0] > 0.0 > mean[1]


class ByName:
    """The columns of a loader under the names of the containers."""

    def __init__(self, loader):
        self._loader = loader
        self.total_size = loader.total_size

    def __iter__(self):
        for table in self._loader:
            yield {"X": table[:, :N_FEATURES], "y": table[:, N_FEATURES], "table": table}


def test_columns_by_name(dataloader, source, table):
    with pm.Model() as model:
        X, y = pm.Data("X", np.zeros((1, N_FEATURES))), pm.Data("y", np.ones(1))
        pm.Data("table", np.zeros((1, table.shape[1])))
        pg.Hinge("label", X @ pm.Normal("w", shape=N_FEATURES), observed=y)
    batches = ByName(dataloader.DataLoader(source, batch_size=100))
    rows = rows_of(model, batches, 120, names=("y", "table", "X")).reshape(N, -1)
    np.testing.assert_array_equal(rows[np.argsort(rows[:, -1])], table)


def test_loader_without_a_total_size(dataloader, model, source):
    with pytest.warns(UserWarning, match="total_size=None"):
        loader = dataloader.DataLoader(source, batch_size=100, total_size=None)
    with pytest.raises(ValueError, match="batches= has no total_size"):
        rows_of(model, loader, 1)


def test_one_pass_only(dataloader, model, source):
    """The loader itself raises the error."""
    loader = dataloader.DataLoader(iter(source), batch_size=100, total_size=N)
    with pytest.raises(RuntimeError, match="pass a zero-arg factory or a re-iterable"):
        rows_of(model, loader, 1)


def test_missing_values(dataloader, model, table, tmp_path):
    columns = {f"c{j}": table[:, j] for j in range(table.shape[1])}
    columns["c1"] = pyarrow.array([None, *table[1:, 1]])
    parquet.write_table(pyarrow.table(columns), tmp_path / "0.parquet")
    loader = dataloader.DataLoader(dataloader.parquet_source(str(tmp_path)), batch_size=100)
    with pytest.raises(ValueError, match="NaN for 'table' in block 1; drop or impute"):
        rows_of(model, loader, 1)


def test_fewer_columns_than_the_container(dataloader, model, source):
    few = dataloader.parquet_source(str(source._paths[0].rsplit("/", 1)[0]), columns=["x0", "y"])
    with pytest.raises(ValueError, match=r"rows of shape \(2,\) for 'table'"):
        rows_of(model, dataloader.DataLoader(few, batch_size=100), 1)
