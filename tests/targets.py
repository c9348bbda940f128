"""Target distributions with exact draws, for the stationarity tests of kernels.

Independent chains start from exact draws of a target and take some steps of a kernel. If the kernel
leaves the target alone, what they end at are exact draws again, and every test for independent
draws applies, with a threshold that a correct kernel passes with almost certainty.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numba import njit
from scipy import special, stats

from pymc_geodesic.manifolds import (
    Euclidean,
    FlatSimplex,
    HalfLine,
    Product,
    Simplex,
    Sphere,
    Stiefel,
)

LIMIT = 5.0
"""Largest deviation, in standard errors, of a kernel that passes."""


@dataclass(frozen=True, eq=False)
class Target:
    """A distribution on a product of manifolds.

    Attributes
    ----------
    name : str
    product : Product
        State space of one chain.
    log_density : numba dispatcher
        ``(x, gradient) -> log π(x)``; writes ∇log π. Both in kernel coordinates.
    draw : callable
        ``(rng, n)`` → exact draws, kernel coordinates of shape ``(n, size)``.
    statistics : callable
        Maps coordinates of shape ``(n, size)`` to arrays of shape ``(n,)``, by name.
    means : mapping
        Exact means of statistics; missing ones are estimated from many exact draws.
    cdfs : mapping
        Cumulative distribution functions of statistics.
    step_size : float
        Step size, short compared with the fastest oscillation, so that chains without Metropolis
        correction have no detectable bias.
    """

    name: str
    product: Product
    log_density: Callable
    draw: Callable[[np.random.Generator, int], np.ndarray]
    statistics: Callable[[np.ndarray], Mapping[str, np.ndarray]]
    means: Mapping[str, float] = field(default_factory=dict)
    cdfs: Mapping[str, Callable] = field(default_factory=dict)
    step_size: float = 0.05

    def __str__(self) -> str:
        return self.name

    def deviations(self, x: np.ndarray, v: np.ndarray | None = None) -> dict[str, float]:
        """Standard errors by which independent draws deviate from the target.

        Means of all statistics and of their squares, Kolmogorov–Smirnov tests of those whose
        distribution is known (the p-value turned into a normal deviate) and, if velocities are
        given, their temperature.
        """
        n = len(x)
        found = {}
        reference = self._reference
        for name, values in self.statistics(x).items():
            for power in (1, 2):
                moment = values**power
                mean, error = reference[name, power]
                found[f"mean of {name}^{power}"] = (moment.mean() - mean) / math.hypot(
                    moment.std() / math.sqrt(n), error
                )
            if name in self.cdfs:
                p_value = stats.kstest(values, self.cdfs[name]).pvalue
                found[f"distribution of {name}"] = stats.norm.isf(0.5 * p_value)
        if v is not None:
            kinetic = (v**2).sum(axis=1) / self.product.dim
            found["temperature"] = (kinetic.mean() - 1.0) / math.sqrt(2.0 / (n * self.product.dim))
        return found

    @cached_property
    def _reference(self) -> dict[tuple[str, int], tuple[float, float]]:
        """Mean of each statistic and of its square, with standard errors."""
        n = 100_000
        values = self.statistics(self.draw(np.random.default_rng(2), n))
        found = {
            (name, power): ((v**power).mean(), (v**power).std() / math.sqrt(n))
            for name, v in values.items()
            for power in (1, 2)
        }
        return found | {(name, 1): (mean, 0.0) for name, mean in self.means.items()}

    def worst(self, x: np.ndarray, v: np.ndarray | None = None) -> float:
        """Largest deviation, infinite if a number is not finite."""
        with np.errstate(all="ignore"):
            sizes = np.abs(list(self.deviations(x, v).values()))
        return float(sizes.max()) if np.isfinite(sizes).all() else math.inf


MEAN_DIRECTION = np.array([2.0, -1.0, 2.0]) / 3.0
KAPPA = 3.0


def directions_around(rng: np.random.Generator, mean: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """Exact von Mises–Fisher draws on S² with one concentration each, by inverting the CDF."""
    n = len(kappa)
    u = rng.uniform(size=n)
    cosine = 1.0 + np.log(u + (1.0 - u) * np.exp(-2.0 * kappa)) / kappa
    turn = rng.uniform(0.0, 2.0 * np.pi, size=n)
    east = np.cross(mean, [0.0, 0.0, 1.0])
    east /= np.linalg.norm(east)
    north = np.cross(mean, east)
    sine = np.sqrt(1.0 - cosine**2)[:, None]
    return cosine[:, None] * mean + sine * (
        np.cos(turn)[:, None] * east + np.sin(turn)[:, None] * north
    )


def cosine_cdf(kappa: float) -> Callable:
    """Distribution function of μ·x on S²."""
    return lambda t: np.expm1(kappa * (t + 1.0)) / np.expm1(2.0 * kappa)


@njit
def _von_mises_fisher(x, gradient):
    total = 0.0
    for i in range(3):
        gradient[i] = KAPPA * MEAN_DIRECTION[i]
        total += gradient[i] * x[i]
    return total


VON_MISES_FISHER = Target(
    "von Mises–Fisher",
    Product([("x", Sphere(3), 1)]),
    _von_mises_fisher,
    lambda rng, n: directions_around(rng, MEAN_DIRECTION, np.full(n, KAPPA)),
    lambda x: {"cosine": x @ MEAN_DIRECTION, "x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2]},
    means={"cosine": 1.0 / math.tanh(KAPPA) - 1.0 / KAPPA},
    cdfs={"cosine": cosine_cdf(KAPPA)},
)

SHAPE = 2.0


@njit
def _log_gamma(x, gradient):
    gradient[0] = SHAPE - math.exp(x[0])
    return SHAPE * x[0] - math.exp(x[0])


LOG_GAMMA = Target(
    "log-gamma",
    Product([("x", Euclidean(1), 1)]),
    _log_gamma,
    lambda rng, n: np.log(rng.gamma(SHAPE, size=(n, 1))),
    lambda x: {"x": x[:, 0], "exp x": np.exp(x[:, 0])},
    means={"x": special.digamma(SHAPE), "exp x": SHAPE},
    cdfs={"x": stats.loggamma(SHAPE).cdf},
)

RISE, FALL = 1.0, 2.5


@njit
def _laplace(x, gradient):
    """A symmetric and an asymmetric Laplace distribution, with kinks at zero."""
    total = 0.0
    for i in range(2):
        rate = FALL if i == 1 and x[i] > 0.0 else RISE
        gradient[i] = -rate * np.sign(x[i])
        total -= rate * abs(x[i])
    return total


def _draw_laplace(rng, n):
    falls = rng.uniform(size=n) < RISE / (RISE + FALL)
    size = rng.exponential(size=n)
    return np.column_stack([rng.laplace(size=n), np.where(falls, size / FALL, -size / RISE)])


LAPLACE = Target(
    "Laplace",
    Product([("x", Euclidean(2), 1)]),
    _laplace,
    _draw_laplace,
    lambda x: {"x0": x[:, 0], "x1": x[:, 1]},
    means={"x0": 0.0, "x1": 1.0 / FALL - 1.0 / RISE},
    cdfs={
        "x0": stats.laplace.cdf,
        "x1": stats.laplace_asymmetric(math.sqrt(FALL / RISE), scale=(RISE * FALL) ** -0.5).cdf,
    },
)

SD_OF_B = 0.5


@njit
def _concentration_and_direction(x, gradient):
    b = x[0]
    kappa = math.exp(b)
    cosine = 0.0
    for i in range(3):
        cosine += MEAN_DIRECTION[i] * x[1 + i]
        gradient[1 + i] = kappa * MEAN_DIRECTION[i]
    gradient[0] = -b / SD_OF_B**2 + 1.0 - kappa / math.tanh(kappa) + kappa * cosine
    return -0.5 * (b / SD_OF_B) ** 2 + b - math.log(math.sinh(kappa)) + kappa * cosine


def _draw_concentration_and_direction(rng, n):
    b = SD_OF_B * rng.standard_normal(n)
    return np.column_stack([b, directions_around(rng, MEAN_DIRECTION, np.exp(b))])


CONCENTRATION_AND_DIRECTION = Target(
    "concentration and direction",
    Product([("b", Euclidean(1), 1), ("x", Sphere(3), 1)]),
    _concentration_and_direction,
    _draw_concentration_and_direction,
    lambda z: {
        "b": z[:, 0],
        "cosine": z[:, 1:] @ MEAN_DIRECTION,
        "rank of cosine given b": cosine_cdf(np.exp(z[:, 0]))(z[:, 1:] @ MEAN_DIRECTION),
        "x0": z[:, 1],
    },
    means={"b": 0.0, "rank of cosine given b": 0.5},
    cdfs={"b": stats.norm(scale=SD_OF_B).cdf, "rank of cosine given b": stats.uniform.cdf},
)

ALPHA = np.array([4.0, 5.0, 6.0])


@njit
def _dirichlet_on_sphere(q, gradient):
    """Dirichlet with the log-volume Σ log|q| of the square-root chart."""
    total = 0.0
    for k in range(3):
        gradient[k] = (2.0 * ALPHA[k] - 1.0) / q[k]
        total += (2.0 * ALPHA[k] - 1.0) * math.log(abs(q[k]))
    return total


@njit
def _dirichlet_on_simplex(theta, gradient):
    total = 0.0
    for k in range(3):
        gradient[k] = (ALPHA[k] - 1.0) / theta[k]
        total += (ALPHA[k] - 1.0) * math.log(theta[k])
    return total


def _proportions(theta):
    return {f"theta{k}": theta[:, k] for k in range(3)}


_DIRICHLET_MEANS = {f"theta{k}": ALPHA[k] / ALPHA.sum() for k in range(3)}
_DIRICHLET_LAWS = {f"theta{k}": stats.beta(ALPHA[k], ALPHA.sum() - ALPHA[k]).cdf for k in range(3)}

DIRICHLET_ON_SPHERE = Target(
    "Dirichlet by square roots",
    Product([("theta", Simplex(3), 1)]),
    _dirichlet_on_sphere,
    lambda rng, n: np.sqrt(rng.dirichlet(ALPHA, n)) * rng.choice([-1.0, 1.0], size=(n, 3)),
    lambda q: _proportions(q**2),
    _DIRICHLET_MEANS,
    _DIRICHLET_LAWS,
    step_size=0.02,
)
DIRICHLET_ON_SIMPLEX = Target(
    "Dirichlet between walls",
    Product([("theta", FlatSimplex(3), 1)]),
    _dirichlet_on_simplex,
    lambda rng, n: rng.dirichlet(ALPHA, n),
    _proportions,
    _DIRICHLET_MEANS,
    _DIRICHLET_LAWS,
    step_size=0.005,
)

TILT = np.array([3.0, 0.0, -2.0])


@njit
def _tilted_simplex(theta, gradient):
    total = 0.0
    for k in range(3):
        gradient[k] = TILT[k]
        total += TILT[k] * theta[k]
    return total


def _draw_tilted_simplex(rng, n):
    """Accept uniform proportions with probability exp(tilt·θ − max tilt)."""
    draws = np.empty((0, 3))
    while len(draws) < n:
        theta = rng.dirichlet(np.ones(3), 4 * n)
        accepted = rng.uniform(size=len(theta)) < np.exp(theta @ TILT - TILT.max())
        draws = np.concatenate([draws, theta[accepted]])
    return draws[:n]


TILTED_SIMPLEX = Target(
    "exponential tilt between walls",
    Product([("theta", FlatSimplex(3), 1)]),
    _tilted_simplex,
    _draw_tilted_simplex,
    _proportions,
)


@njit
def _exponential(x, gradient):
    gradient[0] = -1.0
    return -x[0]


EXPONENTIAL = Target(
    "exponential",
    Product([("x", HalfLine(1), 1)]),
    _exponential,
    lambda rng, n: rng.exponential(size=(n, 1)),
    lambda x: {"x": x[:, 0]},
    means={"x": 1.0},
    cdfs={"x": stats.expon.cdf},
)


@njit
def _truncated_normal(x, gradient):
    total = 0.0
    for i in range(2):
        gradient[i] = 0.5 - x[i]
        total -= 0.5 * (x[i] - 0.5) ** 2
    return total


_TRUNCATED_NORMAL = stats.truncnorm(-0.5, np.inf, loc=0.5)

TRUNCATED_NORMAL = Target(
    "truncated normal",
    Product([("x", HalfLine(2), 1)]),
    _truncated_normal,
    lambda rng, n: _TRUNCATED_NORMAL.rvs(size=(n, 2), random_state=rng),
    lambda x: {"x0": x[:, 0], "x1": x[:, 1]},
    means={"x0": _TRUNCATED_NORMAL.mean(), "x1": _TRUNCATED_NORMAL.mean()},
    cdfs={"x0": _TRUNCATED_NORMAL.cdf, "x1": _TRUNCATED_NORMAL.cdf},
)

FRAME = np.array([[1.0, 0.3], [-0.5, 0.8], [0.2, -0.4]])


@njit
def _matrix_von_mises_fisher(x, gradient):
    total = 0.0
    for i in range(3):
        for j in range(2):
            gradient[2 * i + j] = FRAME[i, j]
            total += FRAME[i, j] * x[2 * i + j]
    return total


def _draw_matrix_von_mises_fisher(rng, n):
    """Accept uniform frames with probability exp(tr FᵀX − sum of the singular values of F)."""
    bound = np.linalg.svd(FRAME, compute_uv=False).sum()
    draws = np.empty((0, 6))
    while len(draws) < n:
        x = Stiefel(3, 2).random_point(rng, 4 * n).reshape(-1, 6)
        accepted = rng.uniform(size=len(x)) < np.exp(x @ FRAME.ravel() - bound)
        draws = np.concatenate([draws, x[accepted]])
    return draws[:n]


MATRIX_VON_MISES_FISHER = Target(
    "matrix von Mises–Fisher",
    Product([("x", Stiefel(3, 2), 1)]),
    _matrix_von_mises_fisher,
    _draw_matrix_von_mises_fisher,
    lambda x: {
        "trace": x @ FRAME.ravel(),
        **{f"x{i}": x[:, i] for i in range(6)},
    },
)

TARGETS = [
    VON_MISES_FISHER,
    LOG_GAMMA,
    LAPLACE,
    CONCENTRATION_AND_DIRECTION,
    DIRICHLET_ON_SPHERE,
    DIRICHLET_ON_SIMPLEX,
    TILTED_SIMPLEX,
    EXPONENTIAL,
    TRUNCATED_NORMAL,
    MATRIX_VON_MISES_FISHER,
]
"""Every kernel is tested on these. A new manifold adds a target here."""


def gradient_error(target: Target) -> float:
    """Largest error of the gradients at a few draws, against differences of the log-density."""
    x = target.draw(np.random.default_rng(3), 5)
    step = 1e-6
    worst = 0.0
    for point in x:
        gradient, scratch = np.empty(point.size), np.empty(point.size)
        target.log_density(point, gradient)
        for i in range(point.size):
            up, down = point.copy(), point.copy()
            up[i] += step
            down[i] -= step
            slope = (target.log_density(up, scratch) - target.log_density(down, scratch)) / (
                2 * step
            )
            worst = max(worst, abs(slope - gradient[i]))
    return worst
