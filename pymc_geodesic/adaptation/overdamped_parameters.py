r"""Settings of Langevin dynamics without a momentum, in the coordinates of a metric.

A step h moves whitened coordinates by a = h²/2 times the gradient, −x + N(0, b_j), and by noise
whose mean over two steps drives the positions (`pymc_geodesic.kernels.sgld`). Their
stationary variance is

.. math:: c_j^2 + \frac{a b_j}{2 - a}

for injected noise of the factor c_j: 1 for all h where c_j² = 1 − a b_j / (2 − a), if b_j is known.
It is known from a few hundred pairs of minibatches, to some 5 to 10 %, so that the part that the
gradient injects is what the step is bounded by.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import FEWEST_STEPS, MOST_STEPS, LangevinSettings
from pymc_geodesic.adaptation.noise_variance import UNSTEADY_HEAT

LONGEST_STEP = 0.5
"""h in posterior standard deviations: stable, h²λ < 4, to sixteen times the average curvature."""

LARGEST_NOISE = 0.5
"""Bound of h² b: about an eighth of the variance of the positions comes from gradient noise.

An error of 10 % in b is then one of 1.3 % in that variance. More of it costs a skewed posterior its
long tail, where the noise grows with the distance from the anchor.
"""


def overdamped_settings(
    noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
) -> LangevinSettings:
    """Step size and number of steps for gradient noise of known variance.

    Along a normal direction a step leaves 1 − h²/2 of a deviation; the inner steps of a draw leave
    about e⁻² of it.

    Parameters
    ----------
    noise : ndarray, shape (size,)
        b_j, in the coordinates of the metric.
    step_size, n_steps : optional
        Used as given.

    Returns
    -------
    LangevinSettings
        Without friction.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.overdamped_parameters import overdamped_settings
    >>> exact = overdamped_settings(np.zeros(3))
    >>> exact.step_size, exact.n_steps
    (0.5, 16)
    >>> noisy = overdamped_settings(np.array([100.0, 0.0]))
    >>> noisy.step_size, noisy.n_steps
    (0.1, 100)
    """
    if step_size is None:
        largest = max(float(noise.max(initial=0.0)), 1e-12)
        step_size = min(LONGEST_STEP, math.sqrt(LARGEST_NOISE / largest))
    if n_steps is None:
        decorrelates = math.ceil(4.0 / step_size**2)
        n_steps = int(np.clip(decorrelates, FEWEST_STEPS, MOST_STEPS))
    return LangevinSettings(step_size, np.zeros_like(noise), noise, n_steps)


def overdamped_steady_step(spread: np.ndarray) -> float:
    """Longest step at which noise of one variance everywhere heats no place much.

    A place where the variance is larger by s is heated by h² s / 4.

    Parameters
    ----------
    spread : ndarray, shape (size,)
        Standard deviation over the posterior of the variance along each coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.overdamped_parameters import overdamped_steady_step
    >>> round(overdamped_steady_step(np.array([0.0, 15.0])), 2)
    0.2
    """
    largest = float(spread.max(initial=0.0))
    return 2.0 * math.sqrt(UNSTEADY_HEAT / largest) if largest > 0.0 else math.inf
