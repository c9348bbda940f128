"""Outlines of regions on the sphere."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from pymc_geodesic.directional.density import SphericalDensity
from pymc_geodesic.directional.projections import equal_area, from_equal_area

_HEMISPHERE = 1.03 * np.sqrt(2.0)

_FEWEST, _MOST = 140, 260


def level_segments(
    x: np.ndarray, y: np.ndarray, height: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the line along which a function on a grid has one value, in pieces.

    Each square of the grid is cut into two triangles, on which the function is linear. Pieces run
    with the higher side on their left; squares with a value that is no number have none.

    Parameters
    ----------
    x : ndarray, shape (n,)
        Grid from left to right.
    y : ndarray, shape (m,)
        Grid upward.
    height : ndarray, shape (n, m)
        The function.
    level : float
        Its value on the line.

    Returns
    -------
    begin, end : ndarray, shape (pieces, 2)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.outlines import level_segments
    >>> grid = np.linspace(-2.0, 2.0, 200)
    >>> a, b = level_segments(grid, grid, -np.hypot(grid[:, None], grid), -1.0)
    >>> round(0.5 * float(np.sum(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])), 3)  # a disc, π
    3.141
    """
    place = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    corners = [(slice(None, -1), slice(None, -1)), (slice(1, None), slice(None, -1)),
               (slice(1, None), slice(1, None)), (slice(None, -1), slice(1, None))]  # fmt: skip
    pieces = []
    for triangle in ((0, 1, 2), (0, 2, 3)):
        value = np.stack([height[corners[k]].ravel() for k in triangle], axis=1) - level
        where = np.stack([place[corners[k]].reshape(-1, 2) for k in triangle], axis=1)
        inside = value >= 0
        count = inside.sum(axis=1)
        crossed = (count % 3 != 0) & np.isfinite(value).all(axis=1)
        value, where, inside = value[crossed], where[crossed], inside[crossed]
        lone = inside == (count[crossed] == 1)[:, None]  # the one corner on its side of the line
        first = np.argmax(lone, axis=1)
        rows = np.arange(len(value))
        ends = []
        for turn in (1, 2):
            other = (first + turn) % 3
            share = value[rows, first] / (value[rows, first] - value[rows, other])
            near, far = where[rows, first], where[rows, other]
            ends.append(near + share[:, None] * (far - near))
        is_inside = inside[rows, first][:, None]
        # From the edge after the lone corner to that before it, the corner is on the left.
        pieces.append(
            (np.where(is_inside, ends[0], ends[1]), np.where(is_inside, ends[1], ends[0]))
        )
    return (
        np.concatenate([begin for begin, _ in pieces]),
        np.concatenate([end for _, end in pieces]),
    )


def outline(density: SphericalDensity, level: float, centre: np.ndarray) -> np.ndarray:
    """Return the line on the sphere along which a density has one value, in pieces with gaps.

    Parameters
    ----------
    density : SphericalDensity
        In space.
    level : float
        Its value on the line.
    centre : ndarray, shape (3,)
        Middle of the grid, which reaches as far as kernels do; beyond 90° there is another grid
        around the opposite point, where this one would be distorted.

    Returns
    -------
    numpy.ndarray, shape (3 · pieces, 3)
        Begin, end and gap of every piece, as unit vectors; the higher side is on the left, seen
        from outside.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import SphericalDensity
    >>> from pymc_geodesic.directional.outlines import outline
    >>> pole = np.array([0.0, 0.0, 1.0])
    >>> line = outline(SphericalDensity(pole[None], 50.0), 1.0, pole)
    >>> heights = line[::3, 2]
    >>> bool(np.ptp(heights) < 0.001)
    True
    """
    reach = 4.0 / np.sqrt(density.concentration)
    centres = density.centres
    if density.axial:
        centres = np.concatenate([centres, -centres])
    halves = []
    for middle in (centre, -centre):
        near = centres[centres @ middle > -min(reach, 1.0)]
        if not len(near):
            continue
        furthest = np.linalg.norm(equal_area(near, middle), axis=1).max() + reach
        if furthest < _HEMISPHERE and len(near) == len(centres):
            return _around(density, level, middle, furthest)
        far = min(furthest, _HEMISPHERE)
        pieces = _around(density, level, middle, far).reshape(-1, 3, 3)
        own_side = pieces[:, :2].mean(axis=1) @ middle >= 0
        halves.append(pieces[own_side].reshape(-1, 3))
    return np.concatenate(halves)


def _around(density: SphericalDensity, level: float, middle: np.ndarray, far: float) -> np.ndarray:
    """Return the outline on a grid in the equal-area map out to a radius."""
    width = 1.0 / np.sqrt(density.concentration)
    side = np.linspace(-far, far, int(np.clip(3.0 * far / width, _FEWEST, _MOST)))
    points = from_equal_area(np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1), middle)
    height = np.full(points.shape[:2], np.nan)
    known = np.isfinite(points[..., 0])
    height[known] = _where_it_is(density, points[known], 7.0 * width)
    begin, end = (from_equal_area(p, middle) for p in level_segments(side, side, height, level))
    gap = np.full_like(begin, np.nan)
    return np.stack([begin, end, gap], axis=1).reshape(-1, 3)


def _where_it_is(density: SphericalDensity, points: np.ndarray, reach: float) -> np.ndarray:
    """Evaluate a density near its centres; it is zero further away."""
    tree = cKDTree(density.centres)
    near = tree.query(points, distance_upper_bound=reach)[0] < reach
    if density.axial:
        near |= tree.query(-points, distance_upper_bound=reach)[0] < reach
    result = np.zeros(len(points))
    result[near] = density(points[near])
    return result
