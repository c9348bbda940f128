r"""The Stein kernel of the inverse multiquadric on products of flat spaces, spheres and frames.

For a law π on a manifold, with P_x the projector on the tangent space, the field
b(x) = P_x ∇log π(x) − H(x) and H of `pymc_geodesic.manifolds.Manifold.mean_gradient`, by parts
E[b f + P ∇f] = 0 for every smooth f, one equation for each ambient coordinate. Applied to both
arguments of k(x, y) = φ(|x − y|²), φ(r²) = (1 + r²/ℓ²)^β, and summed over ambient coordinates, with
δ = x − y,

.. math::

    k_\pi(x, y) = \varphi\, b_x \cdot b_y
        + 2\varphi' (b_y \cdot P_x \delta - b_x \cdot P_y \delta)
        - 2\varphi' \operatorname{tr}(P_x P_y)
        - 4\varphi'' (P_x \delta) \cdot (P_y \delta) .

Variables and points share one φ of the squared distance of them all; the other sums are sums over
them. A frame X ∈ ℝ^{n×p}, a unit vector where p = 1, has with M = XᵀY and S = (M + Mᵀ)/2

.. math::

    P_Y \delta = X - YS, \quad P_X \delta = XS - Y, \quad
    (P_X \delta) \cdot (P_Y \delta) = \operatorname{tr} M - \operatorname{tr} S^3, \quad
    \operatorname{tr}(P_X P_Y) = np - p(p+1)
        + \tfrac14 \bigl( (p + 2) \|M\|^2 + (\operatorname{tr} M)^2 \bigr) .

References
----------
Xu, Matsuda (2021), Interpretable Stein goodness-of-fit tests on Riemannian manifolds, section 3;
Gorham, Mackey (2017), Measuring sample quality with kernels, section 4 for flat space.
"""

from __future__ import annotations

import numpy as np

from pymc_geodesic.runtime.jit import borrow, compiled

EUCLIDEAN = 0
"""Code of flat space; everything else that is passed here is a sphere or a frame."""


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
    """Add what one frame contributes to the five sums of `_pair`.

    The frame is stored as it is; its distances are multiplied by the scale and its field is divided
    by it.
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
        if code == EUCLIDEAN:
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
        By what distances of points on a sphere or of frames are multiplied; Euclidean variables
        come in units of their own.
    positions, fields : ndarray, shape (n, size)
        Points, and b(x) there.
    length : float
        ℓ.
    exponent : float
        β, between −1 and 0.
    first : int
        The first row that is filled.
    kernel : ndarray, shape (m, n)
        Receives the rows first, …, first + m − 1.
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
