r"""Surrogates of the likelihoods of shards, and the conducive gradient that they make.

The surrogate of shard s is the normal law, or on a sphere the Fisher–Bingham law, that its
likelihood looks like around a centre c,

.. math::

    \log q_s(x) = g_s^\top (x - c) + \tfrac{1}{2} (x - c)^\top A_s (x - c) ,

g_s the gradient and A_s the Hessian of the log-likelihood of its rows at c. A chain that visits
shard s with probability f_s follows, beside the gradient of the shard,

.. math::

    \sum_t \nabla \log q_t(x) - \frac{1}{f_s} \nabla \log q_s(x) ,

which is zero on average over the visits, and brings to each shard what the others say.

References
----------
El Mekkaoui, Mesquita, Blomstedt, Kaski (2021), Federated stochastic gradient Langevin dynamics,
section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Quadratic(NamedTuple):
    """A quadratic function, slope·(x − centre) + ½ (x − centre)ᵀ curvature (x − centre).

    Attributes
    ----------
    centre, slope : ndarray, shape (size,)
    curvature : ndarray, shape (size, size)
    """

    centre: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient at a place."""
        return self.slope + self.curvature @ (x - self.centre)


def conducive_terms(
    surrogates: Sequence[Quadratic], probabilities: Sequence[float]
) -> list[Quadratic]:
    """Make what is added to the log-density that a chain sees in each shard.

    Parameters
    ----------
    surrogates : sequence of Quadratic
        log q_s of each shard, with one centre.
    probabilities : sequence of float
        f_s, with which it is visited.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributed.surrogates import Quadratic, conducive_terms
    >>> one = Quadratic(np.zeros(1), np.array([1.0]), np.array([[-2.0]]))
    >>> other = Quadratic(np.zeros(1), np.array([4.0]), np.array([[-2.0]]))
    >>> [float(term.slope[0]) for term in conducive_terms([one, other], [0.5, 0.5])]
    [3.0, -3.0]
    """
    slope = np.sum([q.slope for q in surrogates], axis=0)
    curvature = np.sum([q.curvature for q in surrogates], axis=0)
    return [
        Quadratic(q.centre, slope - q.slope / f, curvature - q.curvature / f)
        for q, f in zip(surrogates, probabilities, strict=True)
    ]
