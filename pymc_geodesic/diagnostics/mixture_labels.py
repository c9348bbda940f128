"""Which component of a mixture of directions a point belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse
from scipy.special import logsumexp

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.given_draws import group_with
from pymc_geodesic.distributions.special import log_vmf_normalizer
from pymc_geodesic.distributions.unit_points import unit_points

__all__ = ["component_probabilities"]

NAMES = ("weights", "mu", "kappa")


def component_probabilities(
    idata: xr.DataTree,
    points: Any,
    *,
    var_names: Sequence[str] = NAMES,
    n_draws: int | None = 500,
) -> xr.DataArray:
    r"""Probability of each point to belong to each component of a mixture.

    .. math::

        p_{ik} = \frac{1}{M} \sum_{m=1}^M
        \frac{w_k^{(m)}\, c_d(\kappa_k^{(m)})\, e^{\kappa_k^{(m)} \mu_k^{(m)} \cdot x_i}}
        {\sum_j w_j^{(m)}\, c_d(\kappa_j^{(m)})\, e^{\kappa_j^{(m)} \mu_j^{(m)} \cdot x_i}}

    over the draws of all chains. These are soft labels; ``.argmax("component")`` makes hard ones.
    The components must have the same order in all draws (`align_topics`, with
    ``var_name="mu"``).

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.models.vmf_mixture`.
    points : array_like or scipy.sparse matrix, shape (point, coordinate)
        Unit vectors, those of the model or new ones.
    var_names : list of str
        Names of weights, mean directions and concentrations.
    n_draws : int, optional
        Draws to average over, at equal distances; None for all.

    Returns
    -------
    xarray.DataArray, shape (point, component)

    Raises
    ------
    ValueError
        If a variable is missing, or points are no unit vectors or have another number of
        coordinates.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import component_probabilities
    >>> draws = {
    ...     "weights": np.full((1, 2, 2), 0.5),
    ...     "mu": np.tile(np.eye(2), (1, 2, 1, 1)),
    ...     "kappa": np.full((1, 2, 2), 3.0),
    ... }
    >>> idata = az.from_dict({"posterior": draws})
    >>> component_probabilities(idata, [[1.0, 0.0], [0.6, 0.8]]).values.round(3)
    array([[0.953, 0.047],
           [0.354, 0.646]])
    """
    takes = f"component_probabilities takes draws of the variables var_names={list(var_names)}"
    drawn = group_with(idata, var_names, takes)
    posterior = drawn[list(var_names)].stack(sample=("chain", "draw"))
    weights, mu, kappa = (posterior[name].transpose("sample", ...).values for name in var_names)
    points = unit_points(points if sparse.issparse(points) else np.atleast_2d(points))
    d = mu.shape[-1]
    kappa = np.broadcast_to(kappa.reshape(len(kappa), -1), weights.shape)
    if points.shape[1] != d:
        raise ValueError(f"points have {points.shape[1]} coordinates, but {var_names[1]!r} has {d}")
    check_count("n_draws", n_draws)
    n_all = len(weights)
    chosen = np.arange(n_all)
    if n_draws is not None and n_draws < n_all:
        chosen = np.linspace(0, n_all - 1, n_draws).astype(int)
    total = np.zeros((points.shape[0], weights.shape[1]))
    for draw in chosen:
        with np.errstate(divide="ignore"):
            constant = np.log(weights[draw]) + log_vmf_normalizer(d, kappa[draw])
        logp = constant + kappa[draw] * np.asarray(points @ mu[draw].T)
        total += np.exp(logp - logsumexp(logp, axis=1, keepdims=True))
    component = str(idata["posterior"][var_names[0]].dims[-1])
    return xr.DataArray(
        total / len(chosen),
        dims=("point", component),
        coords={component: idata["posterior"][component]} if component in idata["posterior"].coords
        else None,
        name="probability",
    )  # fmt: skip
