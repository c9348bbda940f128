"""Maps of the sphere: Schmidt's and Mollweide's, which keep areas, and the globe from outside."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.directional.coordinates import from_lonlat


def facing(centre: ArrayLike) -> np.ndarray:
    """Return the rotation that turns a direction to the viewer, north up.

    Parameters
    ----------
    centre : array_like, shape (3,)
        Unit vector.

    Returns
    -------
    numpy.ndarray, shape (3, 3)
        Rows: right, up, and towards the viewer.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.projections import facing
    >>> facing([1.0, 0.0, 0.0]) @ np.array([0.0, 1.0, 0.0])
    array([1., 0., 0.])
    """
    towards = np.asarray(centre, dtype=float)
    north = np.array([0.0, 0.0, 1.0])
    if abs(towards[2]) > 1.0 - 1e-12:
        north = np.array([-np.sign(towards[2]), 0.0, 0.0])
    right = np.cross(north, towards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(towards, right), towards])


def equal_area(points: ArrayLike, centre: ArrayLike) -> np.ndarray:
    r"""Lambert's azimuthal projection, which geologists call Schmidt's net.

    .. math:: (X, Y) = \sqrt{\frac{2}{1 + x \cdot c}}\; (x \cdot e_1, x \cdot e_2)

    An angle θ from the centre c becomes the radius :math:`2 \sin(\theta / 2)`, and areas are kept
    (Snyder 1987, *Map Projections*, equation 24-2).

    Parameters
    ----------
    points : array_like, shape (..., 3)
        Unit vectors.
    centre : array_like, shape (3,)
        Middle of the map.

    Returns
    -------
    numpy.ndarray, shape (..., 2)
        The whole sphere fills a disc of radius 2.

    Examples
    --------
    >>> from pymc_geodesic.directional.projections import equal_area
    >>> equal_area([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]).round(3).tolist()
    [1.414, 0.0]
    """
    turned = np.asarray(points, dtype=float) @ facing(centre).T
    scale = np.sqrt(2.0 / np.maximum(1.0 + turned[..., 2], 1e-15))
    return scale[..., None] * turned[..., :2]


def from_equal_area(plane: ArrayLike, centre: ArrayLike) -> np.ndarray:
    """Return the unit vectors that `equal_area` takes to these places, NaN beyond radius 2.

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
    return turned @ facing(centre)


def mollweide(points: ArrayLike, central_longitude: float = 0.0) -> np.ndarray:
    r"""Mollweide's map of the whole sphere in an ellipse, which keeps areas.

    .. math:: X = \frac{2\sqrt2}{\pi} \lambda \cos\vartheta, \quad Y = \sqrt2 \sin\vartheta, \quad
              2\vartheta + \sin 2\vartheta = \pi \sin\varphi

    (Snyder 1987, *Map Projections*, equations 31-1 to 31-3).

    Parameters
    ----------
    points : array_like, shape (..., 3)
        Unit vectors.
    central_longitude : float
        Radians of longitude in the middle of the map.

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
    for _ in range(60):  # slow towards the poles, where the slope is zero
        slope = 2.0 + 2.0 * np.cos(2 * theta)
        step = (2 * theta + np.sin(2 * theta) - np.pi * z) / np.maximum(slope, 1e-12)
        theta = np.clip(theta - step, -np.pi / 2, np.pi / 2)
    scale = np.sqrt(2.0)
    return np.stack([2 * scale / np.pi * longitude * np.cos(theta), scale * np.sin(theta)], axis=-1)


def graticule(step: float = 30.0) -> np.ndarray:
    """Return meridians and parallels as lines with gaps, shape (n, 3).

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


def without_jumps(plane: np.ndarray, longest: float) -> np.ndarray:
    """Break a line where it jumps from one edge of a map to the other.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.projections import without_jumps
    >>> without_jumps(np.array([[0.0, 0.0], [9.0, 0.0]]), 1.0)[:, 0].tolist()
    [0.0, nan, 9.0]
    """
    jump = np.linalg.norm(np.diff(plane, axis=0), axis=1) > longest
    return np.insert(plane, np.flatnonzero(jump) + 1, np.nan, axis=0)
