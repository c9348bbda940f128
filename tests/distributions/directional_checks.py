"""Quadrature and draws for tests of distributions around a mean direction."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import integrate, special, stats

from pymc_geodesic.distributions.von_mises_fisher_draws import draw_uniform_directions


def unit_vectors(*shape, seed=1):
    return draw_uniform_directions(np.random.default_rng(seed), shape)


def sphere(n=120):
    """Points and weights of a quadrature on the sphere."""
    height, weight = np.polynomial.legendre.leggauss(n)
    angle = 2 * np.pi * np.arange(2 * n) / (2 * n)
    radius = np.sqrt(1 - height**2)[:, None]
    x = np.stack(
        [radius * np.cos(angle), radius * np.sin(angle), height[:, None] + 0 * angle], axis=-1
    )
    return x.reshape(-1, 3), np.repeat(weight * np.pi / n, 2 * n)


def evaluate(variable, values=None):
    return variable.eval(values, mode="FAST_COMPILE")


def log_density(variable, value):
    return evaluate(pm.logp(variable, value))


@cache
def _log_density_function(distribution, *shapes):
    """Compile a density once for all parameters of the same shapes."""
    value = pt.dmatrix("value")
    parameters = [pt.tensor(dtype="float64", shape=shape) for shape in shapes]
    density = pm.logp(distribution.dist(*parameters), value)
    return pytensor.function([value, *parameters], density, mode="FAST_COMPILE")


def angle_distribution(distribution, *parameters):
    """Integrate over rings around the pole: total mass, mean cosine, cdf of the angle to it."""
    arrays = [np.asarray(parameter, dtype=float) for parameter in parameters]
    (d,) = arrays[0].shape
    grid = np.linspace(0.0, np.pi, 20_001)
    meridian = np.zeros((grid.size, d))
    meridian[:, 0], meridian[:, -1] = np.sin(grid), np.cos(grid)
    area = 2.0 * np.pi ** ((d - 1) / 2) / special.gamma((d - 1) / 2)
    function = _log_density_function(distribution, *(each.shape for each in arrays))
    density = np.exp(function(meridian, *arrays)) * area * np.sin(grid) ** (d - 2)
    cumulative = integrate.cumulative_simpson(density, x=grid, initial=0.0)
    mean = integrate.simpson(density * np.cos(grid), x=grid)
    return cumulative[-1], mean, lambda angle: np.interp(angle, grid, cumulative / cumulative[-1])


def pole(d):
    return np.eye(d)[-1]


def compiled_draws(distribution, *parameters):
    """Return a function of a seed, a number of draws and values: draws of the default backend."""
    rng, size = pt.random.rng("rng"), pt.lscalar("size")
    x = distribution.dist(*parameters, size=(size,), rng=rng)
    function = pytensor.function([rng, size, *parameters], x)
    return lambda seed, n, *values: function(np.random.default_rng(seed), n, *values)


def numpy_draws(rv_op):
    """Return the same function for the draws of NumPy."""

    def draw(seed, n, *values):
        arrays = [np.asarray(value, dtype=float) for value in values]
        return rv_op.rng_fn(np.random.default_rng(seed), *arrays, (n,))

    return draw


def p_values_around(mu, x, angle_cdf):
    """Test the angle to the mean, and the direction around it, of draws."""
    d = mu.size
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1.0, rtol=1e-13)
    angle = 2.0 * np.arcsin(np.minimum(np.linalg.norm(x - mu, axis=-1) / 2.0, 1.0))
    across = np.linalg.svd(mu[None])[2][1:]
    sideways = x @ across.T
    sideways /= np.linalg.norm(sideways, axis=-1, keepdims=True)
    if d == 2:
        around = stats.binomtest(int(np.sum(sideways > 0)), len(x)).pvalue
    else:
        squares = stats.beta(0.5, 0.5 * (d - 2))
        signed = np.sign(sideways[:, 0]) * squares.cdf(sideways[:, 0] ** 2)
        around = stats.kstest(signed, stats.uniform(-1.0, 2.0).cdf).pvalue
    return stats.kstest(angle, angle_cdf).pvalue, around


def central_differences(function, x, step=1e-6):
    """Return the derivatives of a function of one array."""
    slopes = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        slopes[index] = (function(up) - function(down)) / (2.0 * step)
    return slopes


def angle_p_value(x, density):
    grid = np.linspace(-np.pi, np.pi, 20_001)
    cumulative = integrate.cumulative_simpson(density(grid), x=grid, initial=0.0)
    return stats.kstest(x, lambda a: np.interp(a, grid, cumulative / cumulative[-1])).pvalue
