"""Posterior draws as points of a manifold in units of their own, with what Stein kernels need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.arguments import check_count, checked_metric
from pymc_geodesic.diagnostics.draws import with_chains
from pymc_geodesic.diagnostics.stein.kernel import stein_kernel_rows
from pymc_geodesic.gradients.scores import Points, PosteriorScore
from pymc_geodesic.manifolds import Euclidean, Product

DRAWS_PER_DIMENSION = 5
"""Draws for each coordinate below which correlations are not estimated."""

PAIRED = 1000
"""Draws whose distances the median is over."""


@dataclass(frozen=True)
class Units:
    """Units of coordinates in which the draws have about unit variance.

    Attributes
    ----------
    centre : ndarray, shape (d,)
        Of the Euclidean coordinates, which come first.
    factor : ndarray, shape (d, d)
        L of x = c + L z.
    scales : ndarray, shape (n_blocks,)
        What distances on each sphere or Stiefel manifold are multiplied by; 1 for Euclidean ones.
    metric : {"dense", "diag", None}
    """

    centre: np.ndarray
    factor: np.ndarray
    scales: np.ndarray
    metric: str | None

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Z in the Euclidean part, x elsewhere; shape (n, size)."""
        z, d = x.copy(), self.centre.size
        z[:, :d] = np.linalg.solve(self.factor, (x[:, :d] - self.centre).T).T
        return z

    def fields(self, b: np.ndarray) -> np.ndarray:
        """Lᵀ b in the Euclidean part, b elsewhere; shape (n, size)."""
        whitened, d = b.copy(), self.centre.size
        whitened[:, :d] = b[:, :d] @ self.factor
        return whitened


@dataclass(frozen=True)
class SteinSample:
    """Draws in units of their own.

    Attributes
    ----------
    product : Product
    units : Units
    positions, fields : ndarray, shape (n, size)
        z and b.
    log_density : ndarray, shape (n,)
    length, exponent : float
        ℓ and β of the kernel.
    chains, draws : ndarray of int64, shape (n,)
        Which chain and which of its draws each one is, counted from 0.
    points : list of dict
        Values of all variables that PyMC passes around.
    thin : int
        Every how manieth draw was used.
    """

    product: Product
    units: Units
    positions: np.ndarray
    fields: np.ndarray
    log_density: np.ndarray
    length: float
    exponent: float
    chains: np.ndarray
    draws: np.ndarray
    points: Points
    thin: int

    def __len__(self) -> int:
        return len(self.positions)

    def kernel_rows(self, first: int, count: int) -> np.ndarray:
        """Rows first, …, first + count − 1 of the matrix k_π(x_i, x_j)."""
        kernel = np.empty((count, len(self)))
        stein_kernel_rows(
            self.product.blocks,
            self.units.scales,
            self.positions,
            self.fields,
            self.length,
            self.exponent,
            first,
            kernel,
        )
        return kernel

    def kernel_diagonal(self) -> np.ndarray:
        """k_π(x_i, x_i), shape (n,).

        There δ = 0, so that it is b·b + (dimension)/ℓ² times −2β, and no pairs are looked at.
        """
        d = self.units.centre.size
        squares = np.sum(self.fields[:, :d] ** 2, axis=1)
        for (name, manifold, _), scale in zip(
            self.product.components, self.units.scales, strict=True
        ):
            if not isinstance(manifold, Euclidean):
                part = self.fields[:, self.product.slices[name]]
                squares = squares + np.sum(part**2, axis=1) / scale**2
        return squares - 2.0 * self.exponent * self.product.dim / self.length**2


def tangent_fields(product: Product, positions: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Return b(x) = P ∇log π − H(x), in ambient coordinates, shape (n, size)."""
    fields = product.project(positions, gradients)
    for name, manifold, rows in product.components:
        if isinstance(manifold, Euclidean):
            continue
        part = product.slices[name]
        points = positions[:, part].reshape(len(positions), rows, *manifold.shape)
        mean = manifold.mean_gradient(points)
        assert mean is not None, manifold
        fields[:, part] -= mean.reshape(len(positions), -1)
    return fields


def tree_of_draws(idata: xr.DataTree) -> xr.DataTree:
    """Return all groups with the dimensions chain and draw.

    Raises
    ------
    ValueError
        If there is no posterior, or none with chains and draws.
    """
    tree = convert_to_datatree(idata)
    groups = {str(name): group.to_dataset() for name, group in tree.children.items()}
    if tree.name == "posterior" and not groups:  # idata.posterior itself
        groups = {"posterior": tree.to_dataset()}
    if "posterior" not in groups:
        raise ValueError("idata has no posterior; pass what pm.sample returned")
    groups = {name: with_chains(group) for name, group in groups.items()}
    for dim in ("chain", "draw"):
        if dim not in groups["posterior"].dims:
            raise ValueError(
                f"the posterior has no dimension {dim!r}; pass what pm.sample returned, or select "
                f"of it with a list, as in idata.sel({dim}=[0])"
            )
    return xr.DataTree.from_dict(groups)


def stein_sample(
    idata: xr.DataTree,
    score: PosteriorScore,
    *,
    metric: str | None,
    bandwidth: float | str,
    beta: float,
    max_draws: int | None,
    seed: int = 0,
) -> SteinSample:
    """Read draws, evaluate their gradients and put them into units of their own.

    Raises
    ------
    ValueError
        For wrong arguments, a posterior that does not fit the model, too few draws, or a variable
        that does not vary.
    """
    metric = checked_metric(metric)
    check_count("max_draws", max_draws)
    if not -1.0 < beta < 0.0:
        raise ValueError(f"beta must lie between -1 and 0, got {beta}")
    if bandwidth != "median" and not _is_positive(bandwidth):
        raise ValueError(f'bandwidth must be a positive number or "median", got {bandwidth!r}')
    posterior = tree_of_draws(idata)["posterior"].to_dataset()
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    thin = 1 if max_draws is None else -(-n_chains * n_draws // max_draws)
    kept = np.arange(0, n_draws, thin)
    if n_chains * kept.size < 3:
        raise ValueError(
            f"{n_chains * kept.size} draws are too few; sample more, or raise max_draws"
        )
    thinned = posterior.isel(draw=kept)
    stacked = thinned.stack(sample=("chain", "draw"), create_index=False).transpose("sample", ...)
    points = score.points(stacked)
    x = score.positions(points)
    gradients, log_density = score(x, points, seed)
    product = score.product
    units = _units(product, x, metric)
    z = units.positions(x)
    return SteinSample(
        product,
        units,
        z,
        units.fields(tangent_fields(product, x, gradients)),
        log_density,
        median_distance(product, units, z) if bandwidth == "median" else float(bandwidth),
        beta,
        np.repeat(np.arange(n_chains), kept.size),
        np.tile(kept, n_chains),
        points,
        thin,
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and 0.0 < float(value) < np.inf


def _units(product: Product, x: np.ndarray, metric: str | None) -> Units:
    """Units in which the draws have about unit variance; the units of the model if None."""
    scales = np.ones(len(product.components))
    d = 0
    for block, (name, manifold, rows) in enumerate(product.components):
        part = x[:, product.slices[name]]
        if not np.ptp(part, axis=0).any():
            raise ValueError(f"the draws of {name!r} are all the same; leave it out (var_names=)")
        if isinstance(manifold, Euclidean):
            d += part.shape[1]
        elif metric is not None:
            scales[block] = np.sqrt(rows * manifold.dim / part.var(axis=0).sum())
    centre, factor, used = x[:, :d].mean(axis=0), np.eye(d), metric
    if metric is not None and d:
        deviations = x[:, :d].std(axis=0)
        if not deviations.all():
            place = int(np.argmin(deviations))
            name = next(n for n, part in product.slices.items() if part.start <= place < part.stop)
            raise ValueError(
                f"number {place - product.slices[name].start} of {name!r} is the same in all "
                "draws; leave the variable out (var_names=), or pass metric=None"
            )
        factor = np.diag(deviations)
        used = "diag"
        if metric == "dense" or (metric == "auto" and len(x) >= DRAWS_PER_DIMENSION * d):
            used = "dense"
            correlations = np.corrcoef(x[:, :d], rowvar=False).reshape(d, d)
            factor = deviations[:, np.newaxis] * np.linalg.cholesky(correlations)
    elif metric is not None:
        used = "diag"
    return Units(centre, factor, scales, used)


def median_distance(product: Product, units: Units, z: np.ndarray) -> float:
    """Median of the distances between some of the draws, in their units."""
    some = z[:: max(1, len(z) // PAIRED)].copy()
    for (name, _, _), scale in zip(product.components, units.scales, strict=True):
        some[:, product.slices[name]] *= scale
    squares = np.sum(some**2, axis=1)
    apart = squares[:, np.newaxis] + squares - 2.0 * some @ some.T
    return float(np.sqrt(max(np.median(apart[np.triu_indices(len(some), 1)]), 1e-300)))
