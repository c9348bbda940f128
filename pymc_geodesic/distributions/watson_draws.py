"""Exact random directions of the Watson distribution: an angle to the axis, and a tangent.

The envelope is that of `pymc_geodesic.distributions.quadratic_draws`, for the square of the cosine.
"""

import math

import numpy as np

from pymc_geodesic.distributions.draws import Array
from pymc_geodesic.distributions.quadratic_draws import require_direction
from pymc_geodesic.runtime.jit import compiled


@compiled
def fill_watson(rng: np.random.Generator, mu: Array, kappa: float, out: Array) -> int:
    """Fill the rows of ``out``, shape (n, d), with directions of one Watson distribution.

    Only the squared cosine is proposed and rejected; one tangent is drawn for each direction.
    """
    require_direction(mu)
    if not np.isfinite(kappa):
        raise ValueError("kappa must be finite")
    d = mu.size
    half = 0.5 * d
    # t of the envelope: 2 t (t - kappa) = t + (d - 1) (t - kappa), the root above kappa and zero.
    sum_of_roots = kappa + half
    root = 0.5 * (sum_of_roots + math.sqrt((kappa - half) * (kappa - half) + 2.0 * kappa))
    level = max(root, max(kappa, 0.0) + 1e-12 * (1.0 + abs(kappa)))
    proposals = 0
    for row in range(out.shape[0]):
        while True:
            proposals += 1
            normal = rng.standard_normal()
            near = normal * normal / (level - kappa)
            far = 2.0 * rng.standard_gamma(0.5 * (d - 1.0)) / level
            square = near / (near + far)
            precision = (level - kappa) * square + level * (far / (near + far))
            log_acceptance = half - precision + half * math.log(precision / half)
            if rng.standard_exponential() >= -log_acceptance:
                break
        cosine = math.copysign(math.sqrt(square), normal)
        place_at_angle(rng, mu, cosine, math.sqrt(far / (near + far)), out[row])
    return proposals


@compiled
def place_at_angle(
    rng: np.random.Generator, mu: Array, cosine: float, sine: float, out: Array
) -> None:
    """Fill ``out``, shape (d,), with cosine · mu + sine · a uniform direction orthogonal to mu."""
    d = mu.size
    along = 0.0
    for i in range(d):
        out[i] = rng.standard_normal()
        along += out[i] * mu[i]
    # Twice, against rounding where the first projection takes nearly everything.
    again, squared = 0.0, 0.0
    for i in range(d):
        out[i] -= along * mu[i]
        again += out[i] * mu[i]
    for i in range(d):
        out[i] -= again * mu[i]
        squared += out[i] * out[i]
    scale = sine / math.sqrt(squared)
    for i in range(d):
        out[i] = cosine * mu[i] + scale * out[i]
