"""Exact random frames of matrix von Mises–Fisher laws, one at a time, for Numba to compile.

The formulas are those of `pymc_geodesic.distributions.frame_draws`, which explains them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pymc_geodesic.distributions.compiled_draws import compiled_draws
from pymc_geodesic.distributions.draws import Array
from pymc_geodesic.distributions.frame_draws import MOST_PROPOSALS
from pymc_geodesic.ops.bessel_ops import compiled_functions

MOST_SWEEPS = 60
"""Sweeps of rotations, which converge quadratically: ten are many."""


@cache
def compiled_frame(njit: Any) -> Callable[..., None]:
    """Build the function that draws a frame.

    Parameters
    ----------
    njit : callable
        Decorator for every function, as `WithLoop.numba_loop` gets it.

    Returns
    -------
    callable
        Of the generator, F of shape (n, p) and an array of that shape, which it fills.
    """
    draws = compiled_draws(njit)
    log_normalizer = compiled_functions(njit).log_normalizer

    @njit
    def make_orthogonal(columns: Array, rotation: Array) -> None:
        """Rotate columns, and those of another matrix with them, until they are orthogonal."""
        n, p = columns.shape
        for _ in range(MOST_SWEEPS):
            is_done = True
            for a in range(p - 1):
                for b in range(a + 1, p):
                    first, second, product = 0.0, 0.0, 0.0
                    for i in range(n):
                        first += columns[i, a] * columns[i, a]
                        second += columns[i, b] * columns[i, b]
                        product += columns[i, a] * columns[i, b]
                    if np.abs(product) <= 1e-15 * np.sqrt(first * second):
                        continue
                    is_done = False
                    slope = (second - first) / (2.0 * product)
                    sign = 1.0 if slope >= 0.0 else -1.0
                    tangent = sign / (np.abs(slope) + np.sqrt(1.0 + slope * slope))
                    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
                    sine = cosine * tangent
                    for i in range(n):
                        left, right = columns[i, a], columns[i, b]
                        columns[i, a] = cosine * left - sine * right
                        columns[i, b] = sine * left + cosine * right
                    for i in range(p):
                        left, right = rotation[i, a], rotation[i, b]
                        rotation[i, a] = cosine * left - sine * right
                        rotation[i, b] = sine * left + cosine * right
            if is_done:
                return

    @njit
    def orthogonal_part(vector: Array, columns: Array, count: int) -> None:
        """Take from a vector its part along the first columns; twice, against rounding."""
        for _ in range(2):
            for r in range(count):
                along = 0.0
                for i in range(vector.size):
                    along += columns[i, r] * vector[i]
                for i in range(vector.size):
                    vector[i] -= along * columns[i, r]

    @njit
    def normalized(vector: Array) -> float:
        """Divide a vector by its length, unless that is zero, and return the length."""
        squared = 0.0
        for i in range(vector.size):
            squared += vector[i] * vector[i]
        length = np.sqrt(squared)
        if length > 0.0:
            for i in range(vector.size):
                vector[i] /= length
        return length

    @njit
    def fill_uniform(rng: np.random.Generator, columns: Array, count: int, out: Array) -> None:
        """Fill ``out`` with a uniform direction orthogonal to the first columns."""
        for i in range(out.size):
            out[i] = rng.standard_normal()
        orthogonal_part(out, columns, count)
        normalized(out)

    @njit
    def log_constant(dim: int, kappa: float) -> float:
        """Return log c of the von Mises–Fisher density, also on the two points of the line."""
        if dim == 1:
            return -kappa - np.log1p(np.exp(-2.0 * kappa))
        return log_normalizer(np.float64(dim), kappa)

    @njit
    def cosine_and_sine(rng: np.random.Generator, dim: int, kappa: float) -> tuple[float, float]:
        """Draw those of the angle to the mean direction on the sphere of R^dim."""
        if dim == 1:
            upward = rng.random() * (1.0 + np.exp(-2.0 * kappa)) < 1.0
            return 1.0 if upward else -1.0, 0.0
        pole, around = np.zeros(dim), np.empty(dim)
        pole[dim - 1] = 1.0
        draws.fill_von_mises_fisher(rng, pole, kappa, around)
        squared = 0.0
        for i in range(dim - 1):
            squared += around[i] * around[i]
        return around[dim - 1], np.sqrt(squared)

    @njit
    def propose(
        rng: np.random.Generator, pulls: Array, largest: Array, frame: Array, taken: Array
    ) -> float:
        """Fill a frame column by column; return the logarithm of the acceptance probability.

        ``taken`` has room for the columns so far, and for the mean direction of the next.
        """
        n, p = frame.shape
        mean, tangent = np.empty(n), np.empty(n)
        log_acceptance = 0.0
        for r in range(p):
            dim = n - r
            for i in range(n):
                mean[i] = pulls[i, r]
            orthogonal_part(mean, frame, r)
            kappa = normalized(mean)
            if kappa == 0.0:
                fill_uniform(rng, frame, r, mean)
            cosine, sine = cosine_and_sine(rng, dim, kappa)
            for i in range(n):
                for s in range(r):
                    taken[i, s] = frame[i, s]
                taken[i, r] = mean[i]
                tangent[i] = 0.0
            if dim > 1:
                fill_uniform(rng, taken, r + 1, tangent)
            for i in range(n):
                mean[i] = cosine * mean[i] + sine * tangent[i]
            orthogonal_part(mean, frame, r)
            normalized(mean)
            for i in range(n):
                frame[i, r] = mean[i]
            if r > 0:
                log_acceptance += log_constant(dim, largest[r]) - log_constant(dim, kappa)
        return log_acceptance

    @njit
    def lengths_in_order(columns: Array, rotation: Array, lengths: Array) -> None:
        """Write the lengths of columns, and sort them and the columns by decreasing length."""
        n, p = columns.shape
        for r in range(p):
            squared = 0.0
            for i in range(n):
                squared += columns[i, r] * columns[i, r]
            lengths[r] = np.sqrt(squared)
        for r in range(1, p):
            for s in range(r, 0, -1):
                if lengths[s] <= lengths[s - 1]:
                    break
                lengths[s - 1], lengths[s] = lengths[s], lengths[s - 1]
                for i in range(n):
                    columns[i, s - 1], columns[i, s] = columns[i, s], columns[i, s - 1]
                for i in range(p):
                    rotation[i, s - 1], rotation[i, s] = rotation[i, s], rotation[i, s - 1]

    @njit
    def draw(rng: np.random.Generator, F: Array, out: Array) -> None:
        """Propose frames until one is accepted, and write it to ``out``."""
        n, p = F.shape
        pulls, rotation, largest = np.empty((n, p)), np.zeros((p, p)), np.empty(p)
        for r in range(p):
            rotation[r, r] = 1.0
            for i in range(n):
                if not np.isfinite(F[i, r]):
                    raise ValueError("F must be finite")
                pulls[i, r] = F[i, r]
        make_orthogonal(pulls, rotation)
        lengths_in_order(pulls, rotation, largest)
        frame, taken = np.empty((n, p)), np.empty((n, p))
        for _ in range(MOST_PROPOSALS):
            log_acceptance = propose(rng, pulls, largest, frame, taken)
            if -rng.standard_exponential() <= log_acceptance:
                for i in range(n):
                    for j in range(p):
                        total = 0.0
                        for r in range(p):
                            total += frame[i, r] * rotation[j, r]
                        out[i, j] = total
                return
        raise RuntimeError(
            "no draw of MatrixVonMisesFisher was accepted in 100,000 proposals: rejection is not "
            "feasible for this F. Draw by MCMC instead, with pm.sample on a model that holds this "
            "variable alone"
        )

    return draw
