"""Simulated rows like those of HIGGS in heterogeneous shards, and their Laplace approximation."""

from pathlib import Path

import numpy as np

__all__ = ["N_SHARDS", "D", "all_rows", "files_of", "laplace", "rows_of"]

D, N_SHARDS = 28, 8
CHUNK = 200_000


def truth() -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, and the matrix that transforms independent variables to covariates."""
    rng = np.random.default_rng(0)
    mixing = np.eye(D) + 0.5 * rng.normal(size=(D, D)) / np.sqrt(D)
    mixing *= np.exp(rng.uniform(-1.0, 1.0, size=D))[:, None]
    return rng.normal(size=D) / np.sqrt(D) / np.linalg.norm(mixing, axis=1), mixing


def rows_of(shard: int, n: int, *, heterogeneous: bool = True) -> dict[str, np.ndarray]:
    """Simulate the rows of a shard."""
    beta, mixing = truth()
    rng = np.random.default_rng([1, shard])
    covariates, labels, found = [], [], 0
    while found < n:
        z = rng.normal(size=(CHUNK, D))
        z[:, ::4] = np.exp(0.5 * z[:, ::4]) - 1.0  # momenta are skewed
        x = z @ mixing.T
        y = rng.random(CHUNK) < 1.0 / (1.0 + np.exp(-x @ beta))
        kept = y == (shard % 2 == 0) if heterogeneous else slice(None)
        covariates.append(x[kept].astype(np.float32))
        labels.append(y[kept].astype(np.float32))
        found += len(labels[-1])
    return {"X": np.concatenate(covariates)[:n], "y": np.concatenate(labels)[:n]}


def files_of(folder: Path, n: int) -> list[dict[str, str]]:
    """Return paths of the rows of all shards; write missing files.

    Parameters
    ----------
    folder : Path
    n : int
        Total number of rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for shard in range(N_SHARDS):
        paths = {name: folder / f"{name}-{n}-{shard}.npy" for name in ("X", "y")}
        if not all(path.exists() for path in paths.values()):
            for name, array in rows_of(shard, n // N_SHARDS).items():
                part = paths[name].with_suffix(".part.npy")
                np.save(part, array)
                part.replace(paths[name])
        shards.append({name: str(path) for name, path in paths.items()})
    return shards


def all_rows(folder: Path, n: int) -> dict[str, np.ndarray]:
    """Read the rows of all shards."""
    shards = files_of(folder, n)
    rows = {"X": np.empty((n, D), np.float32), "y": np.empty(n, np.float32)}
    size = n // N_SHARDS
    for number, paths in enumerate(shards):
        for name, path in paths.items():
            rows[name][number * size : (number + 1) * size] = np.load(path)
    return rows


def laplace(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mode and standard deviations of the posterior by Newton's method in double precision."""
    mode, n = np.zeros(D + 1), len(rows["y"])
    for _ in range(20):
        gradient, precision = -mode / 25.0, np.eye(D + 1) / 25.0
        for start in range(0, n, CHUNK):
            x = rows["X"][start : start + CHUNK].astype(float)
            x = np.column_stack([np.ones(len(x)), x])
            p = 1.0 / (1.0 + np.exp(-x @ mode))
            gradient += x.T @ (rows["y"][start : start + CHUNK] - p)
            precision += (x * (p * (1.0 - p))[:, None]).T @ x
        step = np.linalg.solve(precision, gradient)
        mode += step
        if np.abs(step).max() < 1e-10:
            break
    return mode, np.sqrt(np.diag(np.linalg.inv(precision)))
