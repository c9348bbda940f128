r"""Stein kernel of the inverse multiquadric on products of Euclidean spaces, spheres and frames.

For a density π on a manifold, with P_x the projector on the tangent space, the field
b(x) = P_x ∇log π(x) − H(x) and H of `pymc_geodesic.manifolds.Manifold.mean_gradient`, by parts
E[b f + P ∇f] = 0 for every smooth f, one equation for each ambient coordinate. Applied to both
arguments of k(x, y) = φ(|x − y|²), φ(r²) = (1 + r²/ℓ²)^β, and summed over ambient coordinates, with
δ = x − y,

.. math::

    k_\pi(x, y) = \varphi\, b_x \cdot b_y
        + 2\varphi' (b_y \cdot P_x \delta - b_x \cdot P_y \delta)
        - 2\varphi' \operatorname{tr}(P_x P_y)
        - 4\varphi'' (P_x \delta) \cdot (P_y \delta) .

φ depends on the squared distance summed over all variables; the other terms are sums over them. A
frame X ∈ ℝ^{n×p}, a unit vector where p = 1, has with M = XᵀY and S = (M + Mᵀ)/2

.. math::

    P_Y \delta = X - YS, \quad P_X \delta = XS - Y, \quad
    (P_X \delta) \cdot (P_Y \delta) = \operatorname{tr} M - \operatorname{tr} S^3, \quad
    \operatorname{tr}(P_X P_Y) = np - p(p+1)
        + \tfrac14 \bigl( (p + 2) \|M\|^2 + (\operatorname{tr} M)^2 \bigr) .

References
----------
Xu, Matsuda (2021), Interpretable Stein goodness-of-fit tests on Riemannian manifolds, section 3;
Gorham, Mackey (2017), Measuring sample quality with kernels, section 4 for Euclidean space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.arguments import check_count, checked_metric
from pymc_geodesic.diagnostics.posterior_draws import with_chains
from pymc_geodesic.gradients.scores import Points, PosteriorScore
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.jit import borrow, compiled

EUCLIDEAN_CODE = 0
"""Code of Euclidean space in the table of components; the others are spheres and frames."""


@compiled
def _frame_terms(
    x: np.ndarray,
    y: np.ndarray,
    bx: np.ndarray,
    by: np.ndarray,
    start: int,
    n: int,
    p: int,
    scale: float,
    inner: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Add the terms of one frame to the five sums of `_pair`.

    Distances of frames are multiplied by the scale, and fields divided by it.
    """
    trace = square = 0.0
    for j in range(p):
        for k in range(p):
            total = 0.0
            for i in range(n):
                total += x[start + i * p + j] * y[start + i * p + k]
            inner[j, k] = total
            square += total * total
        trace += inner[j, j]
    cube = 0.0
    for j in range(p):
        for k in range(p):
            for m in range(p):
                first = inner[j, k] + inner[k, j]
                second = inner[k, m] + inner[m, k]
                cube += 0.125 * first * second * (inner[m, j] + inner[j, m])
    fields = cross = 0.0
    for i in range(n):
        row = start + i * p
        for k in range(p):
            x_turned = y_turned = 0.0
            for j in range(p):
                symmetric = 0.5 * (inner[j, k] + inner[k, j])
                x_turned += x[row + j] * symmetric
                y_turned += y[row + j] * symmetric
            cross += by[row + k] * (x_turned - y[row + k]) - bx[row + k] * (x[row + k] - y_turned)
            fields += bx[row + k] * by[row + k]
    area = scale * scale
    sums[0] += 2.0 * area * (p - trace)
    sums[1] += fields / area
    sums[2] += cross
    sums[3] += n * p - p * (p + 1) + 0.25 * ((p + 2) * square + trace * trace)
    sums[4] += area * (trace - cube)


@compiled
def _pair(
    blocks: np.ndarray,
    scales: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    bx: np.ndarray,
    by: np.ndarray,
    length: float,
    exponent: float,
    inner: np.ndarray,
    sums: np.ndarray,
) -> float:
    """k_π of two points; the sums are |δ|², b_x·b_y, cross terms, tr P_xP_y and P_xδ·P_yδ."""
    for i in range(5):
        sums[i] = 0.0
    for block in range(blocks.shape[0]):
        code, start, rows, size, n, p = blocks[block]
        if code == EUCLIDEAN_CODE:
            square = fields = cross = 0.0
            for i in range(start, start + rows * size):
                apart = x[i] - y[i]
                square += apart * apart
                fields += bx[i] * by[i]
                cross += (by[i] - bx[i]) * apart
            sums[0] += square
            sums[1] += fields
            sums[2] += cross
            sums[3] += rows * size
            sums[4] += square
        else:
            for row in range(rows):
                _frame_terms(x, y, bx, by, start + row * size, n, p, scales[block], inner, sums)
    base = 1.0 + sums[0] / (length * length)
    value = base**exponent
    slope = exponent * value / (base * length * length)
    bend = (exponent - 1.0) * slope / (base * length * length)
    return value * sums[1] + 2.0 * slope * sums[2] - 2.0 * slope * sums[3] - 4.0 * bend * sums[4]


@compiled
def stein_kernel_rows(
    blocks: np.ndarray,
    scales: np.ndarray,
    positions: np.ndarray,
    fields: np.ndarray,
    length: float,
    exponent: float,
    first: int,
    kernel: np.ndarray,
) -> None:
    """Fill some rows of the matrix k_π(x_i, x_j).

    Parameters
    ----------
    blocks : ndarray of int64, shape (n_blocks, 6)
        The product manifold.
    scales : ndarray, shape (n_blocks,)
        Factors of the distances on spheres and of frames; Euclidean variables are whitened.
    positions, fields : ndarray, shape (n, size)
        Points, and b(x) there.
    length : float
        ℓ.
    exponent : float
        β, between −1 and 0.
    first : int
        The first row that is filled.
    kernel : ndarray, shape (m, n)
        Output, rows first, …, first + m − 1.
    """
    blocks, scales, kernel = borrow(blocks), borrow(scales), borrow(kernel)
    positions, fields = borrow(positions), borrow(fields)
    largest = 1
    for block in range(blocks.shape[0]):
        largest = max(largest, blocks[block, 5])
    inner, sums = np.empty((largest, largest)), np.empty(5)
    for i in range(kernel.shape[0]):
        x, bx = positions[first + i], fields[first + i]
        for j in range(positions.shape[0]):
            kernel[i, j] = _pair(
                blocks, scales, x, positions[j], bx, fields[j], length, exponent, inner, sums
            )


DRAWS_PER_DIMENSION = 5
"""Minimum number of draws per coordinate for ``metric="auto"`` to be dense."""

MAX_PAIRED = 1000
"""Maximum number of draws in the computation of the median distance."""


@dataclass(frozen=True)
class Whitening:
    """Whitening transform, after which the draws have about unit variance.

    Attributes
    ----------
    center : ndarray, shape (d,)
        Mean of the Euclidean coordinates, which come first.
    factor : ndarray, shape (d, d)
        L in x = c + L z.
    scales : ndarray, shape (n_blocks,)
        Factors of the distances on spheres and Stiefel manifolds; 1 for Euclidean variables.
    metric : {"dense", "diag", None}
    """

    center: np.ndarray
    factor: np.ndarray
    scales: np.ndarray
    metric: str | None

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Whiten the Euclidean part of positions, shape (n, size)."""
        z, d = x.copy(), self.center.size
        z[:, :d] = np.linalg.solve(self.factor, (x[:, :d] - self.center).T).T
        return z

    def fields(self, b: np.ndarray) -> np.ndarray:
        """Whiten the Euclidean part of fields by Lᵀ b, shape (n, size)."""
        whitened, d = b.copy(), self.center.size
        whitened[:, :d] = b[:, :d] @ self.factor
        return whitened


@dataclass(frozen=True)
class SteinSample:
    """Draws in whitened coordinates, with their gradients and the parameters of the kernel.

    Attributes
    ----------
    product : Product
    whitening : Whitening
    positions, fields : ndarray, shape (n, size)
        z and b.
    log_density : ndarray, shape (n,)
    length, exponent : float
        ℓ and β of the kernel.
    chains, draws : ndarray of int64, shape (n,)
        Indices of the chain and of its draw, from 0.
    points : list of dict
        Points of PyMC.
    thin : int
        Thinning interval.
    """

    product: Product
    whitening: Whitening
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
            self.whitening.scales,
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

        As δ = 0 it equals b·b − 2β dim/ℓ².
        """
        d = self.whitening.center.size
        squares = np.sum(self.fields[:, :d] ** 2, axis=1)
        for (name, manifold, _), scale in zip(
            self.product.components, self.whitening.scales, strict=True
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


def transpose_draws(idata: xr.DataTree) -> xr.DataTree:
    """Transpose all groups to the dimensions (chain, draw, ...).

    Raises
    ------
    ValueError
        If there is no posterior with these dimensions.
    """
    tree = convert_to_datatree(idata)
    groups = {str(name): group.to_dataset() for name, group in tree.children.items()}
    if tree.name == "posterior" and not groups:  # idata.posterior itself
        groups = {"posterior": tree.to_dataset()}
    if "posterior" not in groups:
        raise ValueError("idata has no posterior group. Pass the DataTree that pm.sample returned.")
    groups = {name: with_chains(group) for name, group in groups.items()}
    for dim in ("chain", "draw"):
        if dim not in groups["posterior"].dims:
            raise ValueError(
                f"the posterior has no dimension {dim!r}. Pass the DataTree that pm.sample "
                f"returned, or keep the dimension when selecting: idata.sel({dim}=[0])."
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
    """Thin draws, evaluate their gradients, and whiten them.

    Raises
    ------
    ValueError
        If an argument is invalid, the posterior does not match the model, or there are too few
        draws or a constant variable.
    """
    metric = checked_metric(metric)
    check_count("max_draws", max_draws)
    if not -1.0 < beta < 0.0:
        raise ValueError(f"beta must lie between -1 and 0, got {beta}")
    if bandwidth != "median" and not _is_positive(bandwidth):
        raise ValueError(f'bandwidth must be a positive number or "median", got {bandwidth!r}')
    posterior = transpose_draws(idata)["posterior"].to_dataset()
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    thin = 1 if max_draws is None else -(-n_chains * n_draws // max_draws)
    kept = np.arange(0, n_draws, thin)
    if n_chains * kept.size < 3:
        raise ValueError(
            f"{n_chains * kept.size} draws are too few. Sample more, or increase max_draws."
        )
    thinned = posterior.isel(draw=kept)
    stacked = thinned.stack(sample=("chain", "draw"), create_index=False).transpose("sample", ...)
    points = score.points(stacked)
    x = score.positions(points)
    gradients, log_density = score(x, points, seed)
    product = score.product
    whitening = _whitening(product, x, metric)
    z = whitening.positions(x)
    return SteinSample(
        product,
        whitening,
        z,
        whitening.fields(tangent_fields(product, x, gradients)),
        log_density,
        median_distance(product, whitening, z) if bandwidth == "median" else float(bandwidth),
        beta,
        np.repeat(np.arange(n_chains), kept.size),
        np.tile(kept, n_chains),
        points,
        thin,
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and 0.0 < float(value) < np.inf


def _whitening(product: Product, x: np.ndarray, metric: str | None) -> Whitening:
    """Return the whitening of the draws; the identity if ``metric`` is None."""
    scales = np.ones(len(product.components))
    d = 0
    for block, (name, manifold, rows) in enumerate(product.components):
        part = x[:, product.slices[name]]
        if not np.ptp(part, axis=0).any():
            raise ValueError(f"all draws of {name!r} are equal. Exclude it with var_names=.")
        if isinstance(manifold, Euclidean):
            d += part.shape[1]
        elif metric is not None:
            scales[block] = np.sqrt(rows * manifold.dim / part.var(axis=0).sum())
    center, factor, used = x[:, :d].mean(axis=0), np.eye(d), metric
    if metric is not None and d:
        deviations = x[:, :d].std(axis=0)
        if not deviations.all():
            index = int(np.argmin(deviations))
            name = next(n for n, part in product.slices.items() if part.start <= index < part.stop)
            raise ValueError(
                f"coordinate {index - product.slices[name].start} of {name!r} is equal in all "
                "draws. Exclude the variable with var_names=, or pass metric=None."
            )
        factor = np.diag(deviations)
        used = "diag"
        if metric == "dense" or (metric == "auto" and len(x) >= DRAWS_PER_DIMENSION * d):
            used = "dense"
            correlations = np.corrcoef(x[:, :d], rowvar=False).reshape(d, d)
            factor = deviations[:, np.newaxis] * np.linalg.cholesky(correlations)
    elif metric is not None:
        used = "diag"
    return Whitening(center, factor, scales, used)


def median_distance(product: Product, whitening: Whitening, z: np.ndarray) -> float:
    """Median distance between some of the draws, in whitened coordinates."""
    some = z[:: max(1, len(z) // MAX_PAIRED)].copy()
    for (name, _, _), scale in zip(product.components, whitening.scales, strict=True):
        some[:, product.slices[name]] *= scale
    squares = np.sum(some**2, axis=1)
    apart = squares[:, np.newaxis] + squares - 2.0 * some @ some.T
    return float(np.sqrt(max(np.median(apart[np.triu_indices(len(some), 1)]), 1e-300)))
