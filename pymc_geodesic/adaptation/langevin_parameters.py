r"""Gradient noise in the coordinates of a metric, and the settings of Langevin dynamics it allows.

In coordinates where the posterior has covariance I, a step h of the dynamics

.. math:: dx = v\,dt, \qquad dv = (\nabla \log \pi + \text{noise})\,dt - \gamma v\,dt + \ldots

receives gradient noise of variance h² b_j in direction j, b_j the variance of the estimate. With
the friction γ_j = γ + h b_j / 2 that noise is just what the second part of the friction takes away
again, and injected noise has to match the first part only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.manifolds import Product

LONGEST_STEP = 0.5
"""h in posterior standard deviations, with which a skewed posterior errs by 0.2 % of an sd."""

NORMAL_STEP, NEARLY_NORMAL, SHORTEST_STEP = 4.1, 0.7, 0.1
"""What `step_for_shape` knows: posteriors of regressions are at 0.7 to 0.95 of the normal step, a
funnel of ten dimensions at 0.6 to 0.65."""

FRICTION = 1.0
"""γ at which a normal law of covariance I forgets fastest."""

FEWEST_STEPS, MOST_STEPS = 4, 100
NOT_A_STEP = 0.1
"""Part of a step that is not worth another one."""

LARGEST_NOISE = 1.0
"""Bound of h² b."""

UNEVEN_HEAT = 0.05
"""Excess of the temperature of a direction on a manifold that has more noise than the mean."""


FEW_BESIDE_MANY = 20
"""Times as many coordinates as a variable has, from which all of the others may lean on it."""

SHARED_STEP = 0.5
"""Part of the step of trajectories that leaves such a variable right to a tenth of an sd."""


def step_for_shape(searched: float, dim: int, *, shared: bool = False) -> float:
    """Longest step that the shape of a posterior bears, from how trajectories on it were accepted.

    Leapfrog steps on a normal law with covariance I are accepted with probability 0.8 at about
    (4.1/m)^¼ in m dimensions. Where a search had to take shorter ones the curvature varies, as in
    a funnel or beside a steep edge, and steps without a correction have to be shorter still.

    Parameters
    ----------
    searched : float
        ε at which 0.8 of the trajectories were accepted.
    dim : int
        m.
    shared : bool
        Whether many coordinates lean on a few, as the effects of groups do on their scale. The
        error of a step, which is small in each of them, adds up in those few as √m h²: with 1,000
        groups log scales were 0.5 to 1.5 sds off at h = 0.5. Trajectories with a correction are
        accepted at steps that shrink just so.

    Returns
    -------
    float
        h, 0.5 for a posterior that is nearly normal.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.langevin_parameters import step_for_shape
    >>> step_for_shape(0.6, 10), round(step_for_shape(0.5, 10), 2)
    (0.5, 0.25)
    >>> round(step_for_shape(0.2, 1000, shared=True), 2)
    0.1
    """
    shape = searched / (NORMAL_STEP / dim) ** 0.25
    longest = max(LONGEST_STEP * min(shape / NEARLY_NORMAL, 1.0) ** 6, SHORTEST_STEP)
    return min(longest, SHARED_STEP * searched) if shared else longest


def few_beside_many(sizes: Sequence[int]) -> bool:
    """Whether a variable has so few numbers that all the others may lean on it.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of each variable.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.langevin_parameters import few_beside_many
    >>> few_beside_many([1, 1, 1000]), few_beside_many([28]), few_beside_many([1, 8])
    (True, False, False)
    """
    return bool(sizes) and min(sizes) * FEW_BESIDE_MANY <= sum(sizes)


def principal_directions(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions in which the noise is uncorrelated, and its variance along each.

    Parameters
    ----------
    differences : ndarray, shape (n, d)
        See `differences_of_pairs`.

    Returns
    -------
    rotation : ndarray, shape (d, d)
        Directions in its columns.
    variances : ndarray, shape (d,)
    """
    covariance = 0.5 * differences.T @ differences / len(differences)
    variances, rotation = np.linalg.eigh(covariance)
    return rotation, np.maximum(variances, 0.0)


def largest_square(vectors: np.ndarray) -> float:
    """Mean square of random vectors along the direction in which it is largest.

    The direction comes from every other vector and the mean square along it from the rest, so that
    vectors without a direction are not found to have one by chance.

    Parameters
    ----------
    vectors : ndarray, shape (n, size)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import largest_square
    >>> float(largest_square(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [3.0, 2.0]])))
    9.0
    """
    _, _, directions = np.linalg.svd(vectors[::2], full_matrices=False)
    return float(np.mean((vectors[1::2] @ directions[0]) ** 2))


def even_step(variance: float, surplus: float) -> float:
    """Longest step at which noise that differs by direction heats its worst direction little.

    On a manifold friction and known noise are the same for all directions of a point. What a
    direction has more than the mean, a variance of ``surplus``, heats it by
    h²/4 · surplus · coth(γh/2).

    Examples
    --------
    >>> from pymc_geodesic.adaptation.langevin_parameters import even_step
    >>> even_step(4.0, 0.0)
    0.5
    >>> round(even_step(4.0, 2.0), 3)
    0.056
    """

    def heat(h: float) -> float:
        return 0.25 * h * h * surplus / math.tanh(0.5 * h * (FRICTION + 0.5 * h * variance))

    if heat(LONGEST_STEP) <= UNEVEN_HEAT:
        return LONGEST_STEP
    from scipy.optimize import brentq  # a tenth of a second that few models need

    return float(brentq(lambda h: heat(h) - UNEVEN_HEAT, 1e-12, LONGEST_STEP))


@dataclass(frozen=True, eq=False)
class LangevinSettings:
    """What the kernels of Langevin dynamics are run with.

    Attributes
    ----------
    step_size : float
        h.
    friction : ndarray, shape (size,)
        γ_j, per unit of time.
    noise : ndarray, shape (size,)
        b_j, variance of the gradient estimate.
    n_steps : int
        Inner steps of a draw.
    temperatures : ndarray, shape (n_blocks,), optional
        Temperature that the thermostat of each block holds; 1 by default, more to anneal.
    bounds : (float, float), optional
        Bounds of ξ/γ after each draw.
    block_friction : ndarray, shape (n_blocks,), optional
        γ of each block where its coordinates share one.
    """

    step_size: float
    friction: np.ndarray
    noise: np.ndarray
    n_steps: int
    temperatures: np.ndarray | None = None
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    block_friction: np.ndarray | None = None

    def temperatures_of(self, product: Product) -> np.ndarray:
        """Temperature that each block is to have."""
        return np.ones(len(product.dims)) if self.temperatures is None else self.temperatures

    @cached_property
    def mean_friction(self) -> float:
        """Mean of γ over blocks, or over coordinates that each have their own."""
        each = self.friction if self.block_friction is None else self.block_friction
        return float(np.mean(each))

    @property
    def ess_per_step(self) -> float:
        """Effective draws per inner step, of the direction with the most noise."""
        slowest = 2.0 * self.friction + self.step_size * self.noise
        return float(self.step_size / slowest.max())


def langevin_settings(
    noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
) -> LangevinSettings:
    """Step size, friction and number of steps for gradient noise of known variance.

    Parameters
    ----------
    noise : ndarray, shape (size,)
        b_j, in the coordinates of the metric.
    step_size, n_steps : optional
        Used as given.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import langevin_settings
    >>> exact = langevin_settings(np.zeros(3))
    >>> exact.step_size, exact.friction.tolist(), exact.n_steps
    (0.5, [1.0, 1.0, 1.0], 4)
    >>> noisy = langevin_settings(np.array([100.0, 0.0]))
    >>> noisy.step_size, noisy.friction.tolist(), noisy.n_steps
    (0.1, [6.0, 1.0], 100)
    """
    largest = float(noise.max(initial=0.0))
    if step_size is None:
        step_size = min(LONGEST_STEP, math.sqrt(LARGEST_NOISE / max(largest, 1e-12)))
    friction = FRICTION + 0.5 * step_size * noise
    if n_steps is None:
        decorrelates = (2.0 * friction.mean() + step_size * noise.mean()) / step_size
        wanted = math.ceil(decorrelates - NOT_A_STEP)
        n_steps = int(np.clip(wanted, FEWEST_STEPS, MOST_STEPS))
    return LangevinSettings(step_size, friction, noise, n_steps)
