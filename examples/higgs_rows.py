"""Training rows of HIGGS on disk, in any number, and test sets for `higgs_from_disk`.

The rows of the HIGGS data in the data folder are repeated and jittered by 0.01 of each
feature's standard deviation until there are ten million, in random order (1.2 GB in single
precision).
"""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from pymc_geodesic.datasets import RowBlocks, RowSlices, row_blocks
from pymc_geodesic.datasets.folder import read_arrays

ORIGIN = (
    "HIGGS is in the UCI repository (https://archive.ics.uci.edu/dataset/280/higgs); the file must "
    "hold X_sas (rows, 28) and y_sas for training and X_h2o_test, y_h2o_test, X_h2o_train and "
    "y_h2o_train for testing."
)
JITTER = 0.01
FEW = 5000
"""Rows of the smallest test set."""


class StreamedFrom:
    """The blocks of some rows, beginning at any one of them.

    Parameters
    ----------
    blocks : RowBlocks
    first : int
        Block to begin with.
    """

    def __init__(self, blocks: RowBlocks, first: int = 0) -> None:
        self.blocks, self.first = blocks, first
        self.total_size = blocks.total_size

    def __iter__(self) -> Iterator[tuple[RowSlices, ...]]:
        first = self.first % len(self.blocks)
        return chain(islice(self.blocks, first, None), islice(self.blocks, first))


def far_from(rows: np.ndarray, others: np.ndarray, distance: float) -> np.ndarray:
    """Whether each row has none of the others within a distance."""
    squares = np.sum(others**2, axis=1)
    far = np.empty(len(rows), dtype=bool)
    for start in range(0, len(rows), 500):
        part = rows[start : start + 500]
        nearest = np.min(squares - 2.0 * part @ others.T, axis=1) + np.sum(part**2, axis=1)
        far[start : start + 500] = nearest > distance**2
    return far


def read_higgs(data: str | None) -> tuple[np.ndarray, ...]:
    """Return standardized features, with a column of ones, and signs, for training and testing.

    The first `FEW` rows for testing are the test set of the file, the others its second sample of
    training rows without those near a training row.
    """
    arrays = read_arrays("higgs_small.npz", data_home=data, origin=ORIGIN)
    train = arrays["X_sas"].astype("float64")
    mean, scale = train.mean(axis=0), train.std(axis=0)
    train, test, more = (
        (arrays[name].astype("float64") - mean) / scale
        for name in ("X_sas", "X_h2o_test", "X_h2o_train")
    )
    unseen = far_from(more, train, 10.0 * JITTER)
    test = np.concatenate([test, more[unseen]])
    label = np.concatenate([arrays["y_h2o_test"], arrays["y_h2o_train"][unseen]])
    designs = [np.column_stack([X, np.ones(len(X))]) for X in (train, test)]
    signs = [np.where(values > 0, 1, -1) for values in (arrays["y_sas"], label)]
    return designs[0], signs[0], designs[1], signs[1]


def jittered(
    rng: np.random.Generator, X: np.ndarray, y: np.ndarray, n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows with replacement and jitter them."""
    chosen = rng.integers(len(X), size=n_rows)
    rows = X[chosen].astype("float32")
    noise = rng.standard_normal((n_rows, X.shape[1] - 1), dtype="float32")
    rows[:, :-1] += np.float32(JITTER) * noise
    return rows, y[chosen].astype("int8")


def write_rows(
    folder: Path, X: np.ndarray, y: np.ndarray, n_rows: int, block: int, seed: int = 1
) -> RowBlocks:
    """Write jittered rows unless the folder has them; return their blocks."""
    rng = np.random.default_rng(seed)
    names = [folder / "X.bin", folder / "y.bin"]
    if not (names[1].exists() and names[1].stat().st_size == n_rows):
        with names[0].open("wb") as features, names[1].open("wb") as labels:
            for start in range(0, n_rows, block):
                rows, signs = jittered(rng, X, y, min(block, n_rows - start))
                rows.tofile(features)
                signs.tofile(labels)
    return row_blocks(
        np.memmap(names[0], "float32", mode="r", shape=(n_rows, X.shape[1])),
        np.memmap(names[1], "int8", mode="r", shape=(n_rows,)),
        block_size=block,
    )


def held_out(X: np.ndarray, y: np.ndarray, n_rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Test sets: few rows, all rows, and many rows jittered like the training rows."""
    many = jittered(np.random.default_rng(2), X, y, n_rows)
    sets = {f"{FEW:,} rows": (X[:FEW], y[:FEW]), f"{len(X):,} rows": (X, y)}
    return sets | {f"{n_rows:,} jittered rows": many}


def accuracy(weights: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Percentage of rows with the right sign, for each vector of weights."""
    weights = np.atleast_2d(weights).astype(X.dtype)
    right = np.zeros(len(weights))
    for start in range(0, len(X), 20_000):
        part = slice(start, start + 20_000)
        right += np.sum((X[part] @ weights.T) * y[part, None] > 0.0, axis=0)
    return 100.0 * right / len(X)
