"""Sampling from streamed blocks: in one process or several, from memory or disk, and memory use."""

import os
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.datasets import row_blocks
from tests.grids import slow

# Rows are in order, so that they can be identified; the warning is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:the rows of batches= are not in random order")


def linear_model():
    """Model with one row as a placeholder of the data."""
    with pm.Model() as model:
        X, y = pm.Data("X", np.zeros((1, 2))), pm.Data("y", np.zeros(1))
        w = pm.Normal("w", 0.0, 10.0, shape=2)
        pm.Normal("y_obs", X @ w, 1.0, observed=y)
    return model


def linear_data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2)).astype("float32")
    return X, (X @ [1.0, -2.0] + rng.normal(size=2000)).astype("float32")


def sample(cores=1, arrays=None, **kwargs):
    with linear_model():
        step = pg.SGGMC(
            minibatch=["X", "y"],
            batches=row_blocks(*(arrays or linear_data()), block_size=700),
            batch_size=50,
            compile_kwargs={"mode": "FAST_COMPILE"},
            **kwargs,
        )
        return (
            pm.sample(
                draws=60,
                tune=20,
                chains=2,
                cores=cores,
                step=step,
                random_seed=2,
                progressbar=False,
                compute_convergence_checks=False,
                compile_kwargs={"mode": "FAST_COMPILE"},
            )
            .posterior["w"]
            .to_numpy()
        )


def test_sampling_in_processes_agrees_with_one():
    settings = {"step_size": 2e-3, "friction": 100.0, "draws_per_block": 5}
    draws = sample(**settings)
    np.testing.assert_array_equal(sample(cores=2, **settings), draws)
    np.testing.assert_allclose(draws[:, 30:].mean((0, 1)), [1.0, -2.0], atol=0.1)


def memory_maps(folder):
    for name, array in zip("Xy", linear_data(), strict=True):
        np.save(folder / f"{name}.npy", array)
    return tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy")


def zarr_arrays(folder):
    """Zarr arrays, one of them with chunks within shards."""
    zarr = pytest.importorskip("zarr")
    X, y = linear_data()
    group = zarr.open_group(folder / "rows.zarr", mode="w")
    group.create_array("X", data=X, chunks=(250, 2), shards=(1000, 2))
    group.create_array("y", data=y, chunks=(333,))
    return group["X"], group["y"]


@pytest.mark.slow
@pytest.mark.parametrize("stored", [memory_maps, slow(zarr_arrays)])
def test_rows_on_disk_give_the_draws_of_rows_in_memory(tmp_path, stored):
    """Also in other processes, after this one has read from the files."""
    settings = {"step_size": 2e-3, "friction": 100.0, "draws_per_block": 5}
    draws = sample(**settings)
    arrays = stored(tmp_path)
    for cores in (1, 2):
        np.testing.assert_array_equal(sample(cores=cores, arrays=arrays, **settings), draws)


def test_a_step_is_pickled_while_the_next_block_loads(tmp_path):
    """Neither the thread nor the rows travel to another process, only their names."""
    X, y = linear_data()
    for name, array in (("X", X), ("y", y)):
        array.tofile(tmp_path / name)
    files = [
        np.memmap(tmp_path / name, array.dtype, mode="r", shape=array.shape)
        for name, array in (("X", X), ("y", y))
    ]
    with linear_model() as model:
        step = pg.SGGMC(
            step_size=1e-3,
            friction=100.0,
            minibatch=["X", "y"],
            batches=row_blocks(*files, block_size=700),
            batch_size=50,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    step.setup_chain(np.random.default_rng(1), tune=0, draws=100)
    point, _ = step.step(model.initial_point())
    pickled = cloudpickle.dumps(step)
    assert len(pickled) < X.nbytes + y.nbytes
    copied = cloudpickle.loads(pickled)
    copied.sampling_state = step.sampling_state
    other = point
    for _ in range(12):
        point, _ = step.step(point)
        other, _ = copied.step(other)
    np.testing.assert_array_equal(point["w"], other["w"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws_per_block": 0}, "draws_per_block must be a positive integer, got 0"),
        ({"draws_per_block": 2.5}, "draws_per_block must be a positive integer, got 2.5"),
        ({"draws_per_block": 2, "batches": None}, "draws_per_block= needs batches="),
        ({"draws_per_block": 2, "batch_size": None}, "draws_per_block= needs batch_size="),
        ({"batch_size": 2001}, "batch_size=2001 exceeds the 2000 rows of all blocks"),
        ({"minibatch_order": "sorted"}, "'sorted' is unknown"),
    ],
)
def test_wrong_arguments(arguments, message):
    settings = {
        "minibatch": ["X", "y"],
        "batches": row_blocks(*linear_data(), block_size=700),
        "batch_size": 50,
    } | arguments
    with linear_model(), pytest.raises(ValueError, match=message):
        pg.SGGMC(**settings)


ROOT = Path(__file__).parents[2]
MEASURE = Path(__file__).with_name("measure_memory.py")


def peak_of(what, n_rows, block_size, folder):
    """Memory in bytes that a new process needs for minibatches of rows on disk."""
    run = subprocess.run(
        [sys.executable, MEASURE, what, str(n_rows), str(block_size), str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    growth, total = map(int, run.stdout.split()[-2:])
    return growth, total


needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="reads the peak of memory from /proc"
)
ROW_BYTES = 29 * 4


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize(
    ("what", "row_bytes"), [("rows", ROW_BYTES), slow("sparse", ROW_BYTES + 29 * 4 + 2 * 8)]
)
def test_memory_limit_of_two_blocks(tmp_path, what, row_bytes):
    """A sparse row takes its values, their columns, and an offset."""
    block_size = 300_000
    growth, _ = peak_of(what, 5 * block_size, block_size, tmp_path)
    assert 1.5 * block_size * row_bytes < growth < 2.75 * block_size * row_bytes


@pytest.mark.slow
@needs_linux
def test_ten_million_rows_are_sampled_in_little_memory(tmp_path):
    """They take 2.3 GB; the process may use two tenths of that, and its own memory."""
    block_size = 1_000_000
    growth, total = peak_of("sampling", 10 * block_size, block_size, tmp_path)
    assert growth < 2.5 * block_size * 2 * ROW_BYTES  # pm.Data has double precision
    assert total < 1.5 * 2**30
