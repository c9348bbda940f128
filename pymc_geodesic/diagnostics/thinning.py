"""Stein thinning: a subset of draws with a small kernel Stein discrepancy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.stein_kernel import SteinSample, stein_sample, transpose_draws
from pymc_geodesic.gradients.scores import Model, PosteriorScore
from pymc_geodesic.manifolds import Euclidean

DIFFERENCE_STEP = 1e-3
"""Step of the finite differences of gradients, in whitened coordinates."""


def stein_thinning(
    idata: xr.DataTree,
    model: Model | None = None,
    size: int = 100,
    *,
    var_names: Sequence[str] | str | None = None,
    entropy: float | None = None,
    laplacian: bool = True,
    metric: Literal["auto", "dense", "diag"] | None = "auto",
    bandwidth: float | Literal["median"] = "median",
    beta: float = -0.5,
    max_draws: int | None = 2000,
) -> xr.DataTree:
    r"""Select a subset of draws that represents the posterior.

    Regularized Stein thinning: the t-th draw is chosen greedily to minimize

    .. math::

        k_\pi(x_i, x_i) + \Delta^+ \log \pi(x_i) - \lambda t \log \pi(x_i)
            + 2 \sum_{s < t} k_\pi(x_{\pi_s}, x_i) ,

    with the Stein kernel of `ksd`. Δ⁺ is the sum of the positive second derivatives, which avoids
    draws near minima and saddles of the density, and λ, the weight of the log-density, avoids modes
    of little mass.

    Parameters
    ----------
    idata : xarray.DataTree
        With all free variables of the model in its posterior.
    model : pymc.Model, optional
        Taken from the context by default.
    size : int
        m, the number of draws. A draw may be chosen more than once.
    var_names : str or sequence of str, optional
        Variables of the Stein kernel. By default all continuous free variables.
    entropy : float, optional
        λ; 1/m by default, and 0 for Stein thinning without regularization.
    laplacian : bool
        Whether to add Δ⁺, at the cost of two full-data gradients per coordinate and draw.
    metric, bandwidth, beta
        See `ksd`.
    max_draws : int or None
        Maximum number of candidates, evenly spaced. None uses all draws.

    Returns
    -------
    xarray.DataTree
        One chain of `size` draws, in the order of selection, in each group with the draws of the
        posterior; ``source_chain`` and ``source_draw`` in ``sample_stats`` are their origin. Other
        groups, such as the prior, are unchanged.

    Raises
    ------
    ValueError
        See `ksd`.

    References
    ----------
    Bénard, Staber, Da Veiga (2023), Kernel Stein Discrepancy thinning: a theoretical perspective of
    pathologies and a practical fix with regularization, algorithm 1;
    Riabiz et al. (2022), Optimal thinning of MCMC output.

    Examples
    --------
    Twenty of a thousand draws, the first hundred of which are from warm-up:

    >>> import arviz as az
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.diagnostics import stein_thinning
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    >>> draws = np.random.default_rng(1).normal(size=(1, 1000))
    >>> draws[0, :100] += np.linspace(10.0, 1.0, 100)
    >>> idata = az.from_dict({"posterior": {"x": draws}})
    >>> few = stein_thinning(idata, model, size=20, metric=None)
    >>> few.posterior["x"].shape, bool(abs(few.posterior["x"].mean()) < 0.1)
    ((1, 20), True)
    """
    check_count("size", size)
    if entropy is not None and not 0.0 <= entropy < np.inf:
        raise ValueError(f"entropy must be a finite number, at least 0, got {entropy}")
    score = PosteriorScore(model, var_names=var_names)
    sample = stein_sample(
        idata, score, metric=metric, bandwidth=bandwidth, beta=beta, max_draws=max_draws
    )
    if size > len(sample.draws):
        raise ValueError(
            f"size={size} exceeds the {len(sample.draws)} candidate draws. Use a smaller size=, or "
            "increase max_draws=."
        )
    cost = sample.kernel_diagonal()
    if laplacian:
        cost += _positive_curvature(sample, score)
    chosen = _select_greedily(sample, cost, size, 1.0 / size if entropy is None else entropy)
    return _select_draws(transpose_draws(idata), sample.chains[chosen], sample.draws[chosen])


def _select_greedily(
    sample: SteinSample, cost: np.ndarray, size: int, entropy: float
) -> np.ndarray:
    """Choose greedily; return indices into the sample."""
    reward = entropy * (sample.log_density - sample.log_density.max())
    cost = cost.copy()
    chosen = np.empty(size, dtype=int)
    for t in range(size):
        cost -= reward
        chosen[t] = np.argmin(cost)
        cost += 2.0 * sample.kernel_rows(int(chosen[t]), 1)[0]
    return chosen


def _positive_curvature(sample: SteinSample, score: PosteriorScore) -> np.ndarray:
    """Sum of the positive second derivatives of log π along the coordinates, shape (n,).

    On spheres and Stiefel manifolds they are taken along the geodesics in the directions of the
    projected coordinates.
    """
    product, whitening = sample.product, sample.whitening
    d = whitening.center.size
    x = sample.positions.copy()
    x[:, :d] = whitening.center + x[:, :d] @ whitening.factor.T
    directions = np.eye(product.size)
    directions[:d, :d] = whitening.factor.T
    for (name, manifold, _), scale in zip(product.components, whitening.scales, strict=True):
        if not isinstance(manifold, Euclidean):
            directions[product.slices[name]] /= scale
    total = np.zeros(len(x))
    for direction in directions:
        velocity = product.project(x, np.broadcast_to(direction, x.shape))
        slopes = []
        for time in (-DIFFERENCE_STEP, DIFFERENCE_STEP):
            there, moving = product.geodesic(x, velocity, time)
            slopes.append(np.sum(score(there, sample.points)[0] * moving, axis=1))
        total += np.maximum((slopes[1] - slopes[0]) / (2.0 * DIFFERENCE_STEP), 0.0)
    return total


def _select_draws(idata: xr.DataTree, chains: np.ndarray, draws: np.ndarray) -> xr.DataTree:
    """One chain of selected draws, in every group with the chains and draws of the posterior."""
    posterior = idata["posterior"].to_dataset()
    selection = {
        "chain": xr.DataArray(chains, dims="selected"),
        "draw": xr.DataArray(draws, dims="selected"),
    }
    groups = {}
    for name, group in idata.children.items():
        dataset = group.to_dataset()
        if _has_draws_of(posterior, str(name), dataset):
            dataset = _as_chain(dataset.isel(selection))
        groups[name] = dataset
    stats = groups.get("sample_stats", xr.Dataset())
    if stats.sizes.get("draw", len(draws)) != len(draws):
        stats = xr.Dataset()  # the stats belong to other draws
    origin = {
        "source_chain": posterior["chain"].values[chains],
        "source_draw": posterior["draw"].values[draws],
    }
    stats = stats.assign({k: (("chain", "draw"), v[np.newaxis]) for k, v in origin.items()})
    groups["sample_stats"] = stats.assign_coords(chain=[0], draw=np.arange(len(draws)))
    return xr.DataTree.from_dict(groups)


def _has_draws_of(posterior: xr.Dataset, name: str, dataset: xr.Dataset) -> bool:
    """Whether a group has the chains and draws of the posterior."""
    return not name.startswith(("prior", "warmup_", "unconstrained_prior")) and all(
        dim in dataset.dims and dataset[dim].equals(posterior[dim]) for dim in ("chain", "draw")
    )


def _as_chain(dataset: xr.Dataset) -> xr.Dataset:
    """Make one chain of the selected draws."""
    dataset = dataset.drop_vars(["chain", "draw"], errors="ignore").rename(selected="draw")
    dataset = dataset.assign_coords(draw=np.arange(dataset.sizes["draw"]))
    return dataset.expand_dims(chain=[0]).transpose("chain", "draw", ...)
