"""Differences of independent gradient estimates, from which gradient noise is measured."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import compiled


@compiled
def differences_of_pairs(
    logp_grad: int,
    context: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    points: np.ndarray,
    differences: np.ndarray,
) -> None:
    """Differences of two independent gradient estimates, one pair at each point.

    Parameters
    ----------
    logp_grad, context
        Gradient function of a minibatch, by address; see `pymc_geodesic.runtime.fields`.
    first, second : ndarray of int64, shape (n,)
        The two minibatches of each pair.
    points : ndarray, shape (n, size)
    differences : ndarray, shape (n, size)
        Receives the differences, whose covariance is twice that of the estimate.
    """
    other = np.empty(points.shape[1])
    for pair in range(first.size):
        evaluate(logp_grad, points[pair], first[pair], context, differences[pair])
        evaluate(logp_grad, points[pair], second[pair], context, other)
        for i in range(other.size):
            differences[pair, i] -= other[i]
