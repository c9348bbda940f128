"""Map projections of the sphere, and contours of densities on it."""

from __future__ import annotations

import contourpy
import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from pymc_geodesic.directional.coordinates import from_lonlat
from pymc_geodesic.directional.density import SphericalDensity

_HEMISPHERE = 1.03 * np.sqrt(2.0)
"""Radius of a hemisphere on the equal-area map, with a margin."""

_MIN_GRID, _MAX_GRID = 140, 260
"""Numbers of points along one side of the grid of a contour."""


def rotation_to_viewer(center: ArrayLike) -> np.ndarray:
    """Return the rotation that takes a direction to the viewer, with north up.

    Parameters
    ----------
    center : array_like, shape (3,)
        Unit vector.

    Returns
    -------
    numpy.ndarray, shape (3, 3)
        Rows: right, up, and toward the viewer.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.projections import rotation_to_viewer
    >>> rotation_to_viewer([1.0, 0.0, 0.0]) @ np.array([0.0, 1.0, 0.0])
    array([1., 0., 0.])
    """
    toward = np.asarray(center, dtype=float)
    north = np.array([0.0, 0.0, 1.0])
    if abs(toward[2]) > 1.0 - 1e-12:
        north = np.array([-np.sign(toward[2]), 0.0, 0.0])
    right = np.cross(north, toward)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(toward, right), toward])


def equal_area(points: ArrayLike, center: ArrayLike) -> np.ndarray:
    r"""Lambert azimuthal equal-area projection (Schmidt net).

    .. math:: (X, Y) = \sqrt{\frac{2}{1 + x \cdot c}}\; (x \cdot e_1, x \cdot e_2)

    An angle θ from the center c maps to the radius :math:`2 \sin(\theta / 2)` (Snyder
    1987, *Map Projections*, equation 24-2).

    Parameters
    ----------
    points : array_like, shape (..., 3)
        Unit vectors.
    center : array_like, shape (3,)
        Center of the map.

    Returns
    -------
    numpy.ndarray, shape (..., 2)
        The sphere maps to a disc of radius 2.

    Examples
    --------
    >>> from pymc_geodesic.directional.projections import equal_area
    >>> equal_area([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]).round(3).tolist()
    [1.414, 0.0]
    """
    turned = np.asarray(points, dtype=float) @ rotation_to_viewer(center).T
    scale = np.sqrt(2.0 / np.maximum(1.0 + turned[..., 2], 1e-15))
    return scale[..., None] * turned[..., :2]


def from_equal_area(plane: ArrayLike, center: ArrayLike) -> np.ndarray:
    """Return the inverse of `equal_area`, NaN beyond radius 2.

    Examples
    --------
    >>> from pymc_geodesic.directional.projections import from_equal_area
    >>> from_equal_area([2**0.5, 0.0], [1.0, 0.0, 0.0]).round(3).tolist()
    [0.0, 1.0, 0.0]
    """
    plane = np.asarray(plane, dtype=float)
    square = (plane**2).sum(axis=-1)
    square = np.where(square <= 4.0, square, np.nan)
    turned = np.concatenate(
        [plane * np.sqrt(1.0 - square / 4.0)[..., None], (1.0 - square / 2.0)[..., None]], axis=-1
    )
    return turned @ rotation_to_viewer(center)


def mollweide(points: ArrayLike, central_longitude: float = 0.0) -> np.ndarray:
    r"""Mollweide equal-area projection of the sphere to an ellipse.

    .. math:: X = \frac{2\sqrt2}{\pi} \lambda \cos\vartheta, \quad Y = \sqrt2 \sin\vartheta, \quad
              2\vartheta + \sin 2\vartheta = \pi \sin\varphi

    (Snyder 1987, *Map Projections*, equations 31-1 to 31-3).

    Parameters
    ----------
    points : array_like, shape (..., 3)
        Unit vectors.
    central_longitude : float
        Longitude of the center of the map, in radians.

    Returns
    -------
    numpy.ndarray, shape (..., 2)

    Examples
    --------
    >>> from pymc_geodesic.directional.projections import mollweide
    >>> mollweide([0.0, 1.0, 0.0]).round(3).tolist()
    [1.414, 0.0]
    """
    x, y, z = np.moveaxis(np.asarray(points, dtype=float), -1, 0)
    longitude = (np.arctan2(y, x) - central_longitude + np.pi) % (2 * np.pi) - np.pi
    z = np.clip(z, -1.0, 1.0)
    theta = np.arcsin(z)
    for _ in range(60):  # Newton's method converges slowly near the poles, where the slope is zero
        slope = 2.0 + 2.0 * np.cos(2 * theta)
        step = (2 * theta + np.sin(2 * theta) - np.pi * z) / np.maximum(slope, 1e-12)
        theta = np.clip(theta - step, -np.pi / 2, np.pi / 2)
    scale = np.sqrt(2.0)
    return np.stack([2 * scale / np.pi * longitude * np.cos(theta), scale * np.sin(theta)], axis=-1)


def graticule(step: float = 30.0) -> np.ndarray:
    """Return meridians and parallels as unit vectors, shape (n, 3), separated by NaN.

    Parameters
    ----------
    step : float
        Degrees between lines.

    Examples
    --------
    >>> from pymc_geodesic.directional.projections import graticule
    >>> graticule(90.0).shape[1]
    3
    """
    gap = np.full((1, 3), np.nan)
    along = np.linspace(-180.0, 180.0, 145)
    meridians = [from_lonlat(lon, np.linspace(-90, 90, 73)) for lon in np.arange(-180, 180, step)]
    parallels = [from_lonlat(along, lat) for lat in np.arange(-90 + step, 90, step)]
    return np.concatenate([part for line in (*meridians, *parallels) for part in (line, gap)])


def break_at_jumps(plane: np.ndarray, longest: float) -> np.ndarray:
    """Insert NaN into a line where it crosses from one edge of a map to the other.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.projections import break_at_jumps
    >>> break_at_jumps(np.array([[0.0, 0.0], [9.0, 0.0]]), 1.0)[:, 0].tolist()
    [0.0, nan, 9.0]
    """
    jump = np.linalg.norm(np.diff(plane, axis=0), axis=1) > longest
    return np.insert(plane, np.flatnonzero(jump) + 1, np.nan, axis=0)


def density_contour(density: SphericalDensity, level: float, center: np.ndarray) -> np.ndarray:
    """Return the contour of a density on the sphere, in segments separated by NaN.

    Parameters
    ----------
    density : SphericalDensity
        Density in space.
    level : float
        Its value along the contour.
    center : ndarray, shape (3,)
        Center of the equal-area map on which the contour is found. If the density extends beyond
        90° from it, a second map around the antipode covers the other hemisphere.

    Returns
    -------
    numpy.ndarray, shape (3 · segments, 3)
        Start, end and NaN for each segment, as unit vectors; the higher side is on the left, seen
        from outside.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import SphericalDensity
    >>> from pymc_geodesic.directional.projections import density_contour
    >>> pole = np.array([0.0, 0.0, 1.0])
    >>> line = density_contour(SphericalDensity(pole[None], 50.0), 1.0, pole)
    >>> heights = line[::3, 2]
    >>> bool(np.ptp(heights) < 0.001)
    True
    """
    reach = 4.0 / np.sqrt(density.concentration)
    centers = density.centers
    if density.axial:
        centers = np.concatenate([centers, -centers])
    halves = []
    for middle in (center, -center):
        near = centers[centers @ middle > -min(reach, 1.0)]
        if not len(near):
            continue
        furthest = np.linalg.norm(equal_area(near, middle), axis=1).max() + reach
        if furthest < _HEMISPHERE and len(near) == len(centers):
            return _contour_on_map(density, level, middle, furthest)
        segments = _contour_on_map(density, level, middle, min(furthest, _HEMISPHERE))
        segments = segments.reshape(-1, 3, 3)
        own_side = segments[:, :2].mean(axis=1) @ middle >= 0
        halves.append(segments[own_side].reshape(-1, 3))
    return np.concatenate(halves)


def _contour_on_map(
    density: SphericalDensity, level: float, center: np.ndarray, radius: float
) -> np.ndarray:
    """Return the contour on a grid in the equal-area map out to a radius."""
    width = 1.0 / np.sqrt(density.concentration)
    side = np.linspace(-radius, radius, int(np.clip(3.0 * radius / width, _MIN_GRID, _MAX_GRID)))
    points = from_equal_area(np.stack(np.meshgrid(side, side), axis=-1), center)
    height = np.ma.masked_all(points.shape[:2])
    on_map = np.isfinite(points[..., 0])
    height[on_map] = _evaluate_near_centers(density, points[on_map], 7.0 * width)
    segments = [np.empty((0, 3, 3))]
    for line in contourpy.contour_generator(side, side, height).lines(level):
        points = from_equal_area(np.asarray(line), center)
        segments.append(np.stack([points[:-1], points[1:], np.full_like(points[1:], np.nan)], 1))
    return np.concatenate(segments).reshape(-1, 3)


def _evaluate_near_centers(
    density: SphericalDensity, points: np.ndarray, reach: float
) -> np.ndarray:
    """Evaluate a density within a distance of its kernels; it is set to zero elsewhere."""
    tree = cKDTree(density.centers)
    near = tree.query(points, distance_upper_bound=reach)[0] < reach
    if density.axial:
        near |= tree.query(-points, distance_upper_bound=reach)[0] < reach
    result = np.zeros(len(points))
    result[near] = density(points[near])
    return result
