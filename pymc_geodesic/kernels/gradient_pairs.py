"""Differences of independent gradient estimates, from which gradient noise is measured."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import compiled


@compiled
def differences_of_pairs(
    field: int,
    context: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    places: np.ndarray,
    differences: np.ndarray,
) -> None:
    """Differences of two independent gradient estimates, each pair at a place of its own.

    Parameters
    ----------
    field, context
        Field of minibatch gradients; see `pymc_geodesic.runtime.fields`.
    first, second : ndarray of int64, shape (n,)
        Arguments of the field: two minibatches for each pair.
    places : ndarray, shape (n, size)
    differences : ndarray, shape (n, size)
        Receives the differences, whose covariance is twice that of the estimate.
    """
    other = np.empty(places.shape[1])
    for pair in range(first.size):
        evaluate(field, places[pair], first[pair], context, differences[pair])
        evaluate(field, places[pair], second[pair], context, other)
        for i in range(other.size):
            differences[pair, i] -= other[i]
