r"""Consensus Monte Carlo on spheres and simplices: merging of draws from posteriors of shards.

The posterior of each shard has its own rows and the prior to the power 1/S, so that the posterior
of all rows is proportional to the product of the S densities. Consensus Monte Carlo averages draws,
which is exact for normal densities. Here von Mises–Fisher or Dirichlet densities are fitted to the
draws, whose product is exact.

References
----------
Scott, Blocker, Bonassi, Chipman, George, McCulloch (2016), Bayes and big data: the consensus Monte
Carlo algorithm, section 3.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy.special import digamma, polygamma

from pymc_geodesic.arguments import check_count
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
from pymc_geodesic.ops.bessel import kappa_of_resultant_length

MAX_NEWTON_STEPS = 100

MAX_ANISOTROPY = 2.0
"""Ratio of the largest to the smallest variance in the tangent space, beyond the ratio expected of
isotropic draws, from which `merge_directions` warns. Two shards with crossed axes and this ratio
are merged to sds that are 6 % too large."""


def merge_directions(
    draws: Sequence[np.ndarray],
    n_draws: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    r"""Merge draws of unit vectors from the posteriors of shards.

    A von Mises–Fisher density with mean direction :math:`\mu_s` and concentration :math:`\kappa_s`
    is fitted to the draws of each shard by maximum likelihood. The product is von Mises–Fisher too:

    .. math::

        \prod_s \exp(\kappa_s\, \mu_s^\top x) = \exp(\kappa\, \mu^\top x), \qquad
        \kappa\, \mu = \sum_s \kappa_s\, \mu_s .

    Parameters
    ----------
    draws : sequence of ndarray, each of shape (draw, ..., d)
        Unit vectors; shards may have different numbers of draws. Variables along the axes in
        between are merged independently.
    n_draws : int, optional
        Number of merged draws; by default the smallest number of a shard.
    random_seed : int or Generator, optional

    Returns
    -------
    ndarray, shape (n_draws, ..., d)
        Independent draws of the product.

    Raises
    ------
    ValueError
        If there are no shards, their shapes differ, a draw is not a unit vector, or `n_draws` is
        not a positive integer.

    Warns
    -----
    UserWarning
        If the draws of a shard have different variances in different tangent directions. The
        fitted von Mises–Fisher distributions are isotropic, so that merged draws are too wide where
        shards are informative in different directions. Checked with more draws than coordinates.

    See Also
    --------
    merge_proportions : for points of a simplex.
    sample : samples the posterior of all rows.

    Notes
    -----
    Accurate if the posterior of each shard is nearly von Mises–Fisher, as with many rows.
    Correlations between variables are ignored.

    References
    ----------
    Mardia, Jupp (2000), Directional Statistics, sections 9.3.2 and 10.3.1.
    Scott et al. (2016), Bayes and big data: the consensus Monte Carlo algorithm, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributed import merge_directions
    >>> rng = np.random.default_rng(1)
    >>> shards = [rng.normal(size=(500, 3)) * 0.1 + mean for mean in np.eye(3)[:2]]
    >>> shards = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in shards]
    >>> merge_directions(shards, random_seed=1).mean(axis=0)[:2].round(1)
    array([0.7, 0.7])
    """
    checked = _validate(draws)
    for shard, array in enumerate(checked):
        if not np.allclose(np.linalg.norm(array, axis=-1), 1.0, atol=1e-6):
            raise ValueError(f"draws of shard {shard} are not unit vectors along the last axis")
    fitted = [_fit_von_mises_fisher(array) for array in checked]
    _warn_of_anisotropy(checked, fitted)
    parameter = np.sum(fitted, axis=0)
    kappa = np.linalg.norm(parameter, axis=-1)
    pole = np.zeros_like(parameter)
    pole[..., -1] = 1.0  # an arbitrary direction for a uniform product
    mu = np.divide(parameter, kappa[..., None], out=pole, where=kappa[..., None] > 0)
    check_count("n_draws", n_draws)
    n = min(map(len, checked)) if n_draws is None else int(n_draws)
    rng = np.random.default_rng(random_seed)
    return draw_von_mises_fisher(rng, mu, kappa, (n, *kappa.shape))


def merge_proportions(
    draws: Sequence[np.ndarray],
    n_draws: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    r"""Merge draws of proportions from the posteriors of shards.

    A Dirichlet density with parameters :math:`a_s` is fitted to the draws of each shard by maximum
    likelihood. The product is Dirichlet too:

    .. math::

        \prod_s \mathrm{Dir}(x \mid a_s)
        \propto \mathrm{Dir}\Bigl(x \Bigm| 1 + \sum_s (a_s - 1)\Bigr) .

    Parameters
    ----------
    draws : sequence of ndarray, each of shape (draw, ..., k)
        Points of a simplex with positive entries; see `merge_directions`.
    n_draws : int, optional
        Number of merged draws; by default the smallest number of a shard.
    random_seed : int or Generator, optional

    Returns
    -------
    ndarray, shape (n_draws, ..., k)
        Independent draws of the product.

    Raises
    ------
    ValueError
        If there are no shards, their shapes differ, a draw is not inside the simplex, the product
        cannot be normalized, or `n_draws` is not a positive integer.

    See Also
    --------
    merge_directions : for unit vectors.

    References
    ----------
    Minka (2000), Estimating a Dirichlet distribution, section 1.
    Scott et al. (2016), Bayes and big data: the consensus Monte Carlo algorithm, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributed import merge_proportions
    >>> rng = np.random.default_rng(1)
    >>> shards = [rng.dirichlet([50.0, 20.0, 30.0], 500), rng.dirichlet([10.0, 40.0, 50.0], 500)]
    >>> merge_proportions(shards, random_seed=1).mean(axis=0).round(1)
    array([0.3, 0.3, 0.4])
    """
    checked = _validate(draws)
    for shard, array in enumerate(checked):
        if not ((array > 0).all() and np.allclose(array.sum(axis=-1), 1.0, atol=1e-6)):
            raise ValueError(
                f"draws of shard {shard} are not inside the simplex along the last axis: entries "
                "must be positive and sum to 1"
            )
    parameter = 1.0 + np.sum([_fit_dirichlet(array) - 1.0 for array in checked], axis=0)
    if not (parameter > 0).all():
        raise ValueError(
            "the product of the shards cannot be normalized: an entry is near zero in too many "
            "of them. Use the prior to the power 1/S in each shard"
        )
    check_count("n_draws", n_draws)
    n = min(map(len, checked)) if n_draws is None else int(n_draws)
    rng = np.random.default_rng(random_seed)
    gammas = rng.standard_gamma(parameter, size=(n, *parameter.shape))
    return gammas / gammas.sum(axis=-1, keepdims=True)


def _validate(draws: Sequence[np.ndarray]) -> list[np.ndarray]:
    arrays = [np.asarray(each, dtype=float) for each in draws]
    if not arrays:
        raise ValueError("there are no shards to merge")
    shapes = [array.shape for array in arrays]
    if min(array.ndim for array in arrays) < 2:
        raise ValueError(
            "draws= is a list with one array for each shard, of shape (draw, ..., coordinate), got "
            f"arrays of shape {shapes[0]}"
        )
    if len({shape[1:] for shape in shapes}) > 1 or min(shape[0] for shape in shapes) < 2:
        raise ValueError(
            f"draws of all shards need one shape, and at least two draws each, got {shapes}"
        )
    return arrays


def _fit_von_mises_fisher(draws: np.ndarray) -> np.ndarray:
    """Maximum-likelihood estimate of κμ, shape (..., d)."""
    resultant = draws.mean(axis=0)
    length = np.linalg.norm(resultant, axis=-1)
    kappa = kappa_of_resultant_length(draws.shape[-1], length)
    scale = np.divide(kappa, length, out=np.zeros_like(kappa), where=length > 0)
    return scale[..., None] * resultant


def _warn_of_anisotropy(draws: Sequence[np.ndarray], fitted: Sequence[np.ndarray]) -> None:
    """Warn of the shard whose variances in the tangent space differ the most.

    The eigenvalues of the covariance of n isotropic draws in p dimensions lie between
    (1 − √(p/n))² and (1 + √(p/n))² of their mean (Marchenko–Pastur).
    """
    worst, ratio, where = MAX_ANISOTROPY, 1.0, ""
    for shard, (array, parameter) in enumerate(zip(draws, fitted, strict=True)):
        n, p = len(array), array.shape[-1] - 1
        if n <= p or p < 2:
            continue
        expected = ((1.0 + math.sqrt(p / n)) / (1.0 - math.sqrt(p / n))) ** 2
        for index in np.ndindex(parameter.shape[:-1]):
            length = np.linalg.norm(parameter[index])
            if length == 0.0:
                continue
            mu, x = parameter[index] / length, array[(slice(None), *index)]
            tangent = x - np.outer(x @ mu, mu)
            variances = np.linalg.eigvalsh(tangent.T @ tangent / n)[1:]  # the first is along mu
            found = variances[-1] / max(variances[0], 1e-300)
            if found / expected > worst:
                worst, ratio = found / expected, found
                where = f"shard {shard}" + (f", variable {index}" if index else "")
    if where:
        warnings.warn(
            f"the draws of {where} have an sd {math.sqrt(ratio):.2g} times as large in one tangent "
            "direction as in another, but merge_directions fits an isotropic von Mises–Fisher "
            "distribution to each shard: merged draws are too wide where shards are informative in "
            "different directions. Sample the posterior of all rows with "
            "pymc_geodesic.distributed.sample, or distribute the rows over the shards in random "
            "order.",
            stacklevel=3,
        )


def _fit_dirichlet(draws: np.ndarray) -> np.ndarray:
    """Maximum-likelihood estimate of the parameters, shape (..., k), by Newton's method."""
    logs = np.log(draws).mean(axis=0)
    mean, square = draws.mean(axis=0), (draws**2).mean(axis=0)
    variance = np.maximum(square - mean**2, 1e-300)
    total = np.median((mean - square) / variance, axis=-1, keepdims=True)
    alpha = np.maximum(total * mean, 1e-3)
    for _ in range(MAX_NEWTON_STEPS):
        whole = alpha.sum(axis=-1, keepdims=True)
        gradient = digamma(whole) - digamma(alpha) + logs
        curvature = -polygamma(1, alpha)
        common = polygamma(1, whole)
        shared = np.sum(gradient / curvature, axis=-1, keepdims=True) / (
            1.0 / common + np.sum(1.0 / curvature, axis=-1, keepdims=True)
        )
        step = (gradient - shared) / curvature
        alpha = np.maximum(alpha - step, 0.1 * alpha)
        if np.max(np.abs(step) / alpha) < 1e-10:
            break
    return alpha
