"""Columns of draws and sample stats: what comes back is what went in, as PyMC would keep it."""

import numpy as np
import pytest
from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_geodesic.runs.chain_files import ChainFiles
from pymc_geodesic.runs.columns import Columns

KINDS = [
    {"size": np.dtype(float), "phase": np.dtype("<U6"), "diverging": np.dtype(bool)},
    {"size": np.dtype(float), "warning": np.dtype(object), "trees": np.dtype(object)},
]


def draw(i):
    """A draw whose values use the same memory as that of the draw before."""
    draw.memory[:] = i
    warning = SamplerWarning(WarningType.DIVERGENCE, f"at {i}", "warn") if i % 7 == 3 else None
    first = {"size": i / 3.0, "phase": "tune" if i < 5 else "sample"}
    if i % 2:
        first["diverging"] = True
    second = {"size": None, "warning": warning, "trees": np.array([i, i + 1])}
    return [draw.memory, np.float32(i)], [first, second]


draw.memory = np.zeros((2, 3))


@pytest.fixture
def files(tmp_path):
    return ChainFiles(tmp_path)


@pytest.mark.parametrize("lengths", [[1], [64], [65, 3], [5, 200, 1, 64]], ids=str)
def test_what_is_written_is_read(files, lengths):
    columns, first = Columns(["x", "y"], KINDS), 0
    for n in lengths:
        for i in range(first, first + n):
            columns.append(*draw(i))
        assert columns.n == n
        files.write_draws(first, columns.content())
        columns.clear()
        first += n
    found = files.read()
    rows = np.arange(first)
    assert found.n == files.count() == first
    np.testing.assert_array_equal(found.values["x"], np.full((first, 2, 3), rows[:, None, None]))
    assert found.values["y"].dtype == np.float32
    one, other = found.stats
    np.testing.assert_array_equal(one["size"], rows / 3.0)
    np.testing.assert_array_equal(one["phase"], np.where(rows < 5, "tune", "sample"))
    np.testing.assert_array_equal(one["diverging"], rows % 2 == 1)
    np.testing.assert_array_equal(other["size"], np.zeros(first))
    np.testing.assert_array_equal(other["trees"], np.column_stack([rows, rows + 1]))
    assert len(other["warning"]) == first
    assert {i: w.message for i, w in enumerate(other["warning"]) if w is not None} == {
        i: f"at {i}" for i in range(first) if i % 7 == 3
    }


def test_shapes_that_change_are_kept_in_a_list(files):
    columns = Columns(["x"], [{"trees": np.dtype(object)}])
    trees = [np.zeros(2), np.zeros(3), None, np.ones(1)]
    for each in trees:
        columns.append([np.zeros(1)], [{"trees": each}])
    files.write_draws(0, columns.content())
    for was, now in zip(trees, files.read().stats[0]["trees"], strict=True):
        np.testing.assert_array_equal(was, now)


def test_draws_are_counted_without_those_that_cannot_be_read(files):
    columns = Columns(["x"], [])
    for first in range(3):
        columns.append([np.zeros(1)], [])
        files.write_draws(first, columns.content())
        columns.clear()
    (files.folder / "draws-000000002.npz").write_bytes(b"nothing")
    assert files.count() == 2
    assert ChainFiles(files.folder / "nowhere").count() == 0
