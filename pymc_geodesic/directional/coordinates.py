"""Conversion of unit vectors to longitude and latitude, and declination and inclination."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

PACKAGE = str(Path(__file__).parents[2])

TWO_TURNS = 4.0 * np.pi
"""Largest absolute value of angles in radians without a warning."""

UNITS = {"deg": 180.0 / np.pi, "degrees": 180.0 / np.pi, "rad": 1.0, "radians": 1.0}


def units_per_radian(unit: str) -> float:
    """Return one radian in another unit.

    Raises
    ------
    ValueError
        If `unit` is unknown.

    Examples
    --------
    >>> from pymc_geodesic.directional.coordinates import units_per_radian
    >>> round(units_per_radian("deg"), 3)
    57.296
    """
    if unit not in UNITS:
        raise ValueError(f"`unit` must be 'deg' or 'rad', got {unit!r}.")
    return UNITS[unit]


def warn_if_degrees(name: str, angles: np.ndarray) -> None:
    """Warn of angles in radians that exceed 4π in absolute value, as angles in degrees do.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.coordinates import warn_if_degrees
    >>> warn_if_degrees("wind", np.array([0.1, 6.2]))
    """
    largest = float(np.max(np.abs(angles), initial=0.0, where=np.isfinite(angles)))
    if largest > TWO_TURNS:
        warnings.warn(
            f"The angles of {name!r} are interpreted as radians, but their largest absolute value "
            f"is {largest:.4g}. Convert degrees with np.radians.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )


def to_lonlat(vectors: ArrayLike, *, unit: str = "deg") -> tuple[np.ndarray, np.ndarray]:
    r"""Longitude and latitude of vectors in space.

    .. math:: \lambda = \operatorname{atan2}(y, x), \qquad
              \varphi = \operatorname{atan2}(z, \sqrt{x^2 + y^2})

    Parameters
    ----------
    vectors : array_like, shape (..., 3)
        Nonzero vectors.
    unit : {"deg", "rad"}
        Unit of both angles.

    Returns
    -------
    lon : numpy.ndarray, shape (...)
        From −180° to 180°.
    lat : numpy.ndarray, shape (...)
        From −90° to 90°, with the sign of z.

    Raises
    ------
    ValueError
        If the length of the last axis is not 3, or `unit` is unknown.

    Examples
    --------
    >>> from pymc_geodesic.directional import to_lonlat
    >>> lon, lat = to_lonlat([0.0, 1.0, 1.0])
    >>> float(lon), float(lat)
    (90.0, 45.0)
    """
    x, y, z = _components(vectors)
    # y + 0.0 is never −0.0, whose longitude for x < 0 would be −180°.
    scale = units_per_radian(unit)
    return scale * np.arctan2(y + 0.0, x), scale * np.arctan2(z, np.hypot(x, y))


def from_lonlat(lon: ArrayLike, lat: ArrayLike, *, unit: str = "deg") -> np.ndarray:
    r"""Return unit vectors :math:`(\cos\varphi\cos\lambda, \cos\varphi\sin\lambda, \sin\varphi)`.

    Parameters
    ----------
    lon, lat : array_like
        Longitude and latitude, with shapes that broadcast.
    unit : {"deg", "rad"}
        Unit of both.

    Returns
    -------
    numpy.ndarray, shape (..., 3)

    Raises
    ------
    ValueError
        If a latitude is not between −90° and 90°, or `unit` is unknown.

    Examples
    --------
    >>> from pymc_geodesic.directional import from_lonlat
    >>> from_lonlat(90.0, 30.0).round(3).tolist()
    [0.0, 0.866, 0.5]
    """
    scale = units_per_radian(unit)
    lon, lat = np.broadcast_arrays(np.asarray(lon, float) / scale, np.asarray(lat, float) / scale)
    if (np.abs(lat) > np.pi / 2 + 1e-12).any():
        raise ValueError(
            f"`lat` must lie between −90° and 90°, or in radians between −π/2 and π/2; the largest "
            f"absolute value is {np.abs(lat).max() * scale:.6g} with unit={unit!r}."
        )
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


def to_declination_inclination(
    vectors: ArrayLike, *, unit: str = "deg"
) -> tuple[np.ndarray, np.ndarray]:
    r"""Declination and inclination of vectors with the components north, east and down.

    The declination :math:`D = \operatorname{atan2}(\text{east}, \text{north})` is clockwise from
    north, the inclination positive downward (Butler 1992, *Paleomagnetism*, chapter 1).

    Parameters
    ----------
    vectors : array_like, shape (..., 3)
        Components north, east, down.
    unit : {"deg", "rad"}
        Unit of both angles.

    Returns
    -------
    declination : numpy.ndarray, shape (...)
        From 0° to 360°.
    inclination : numpy.ndarray, shape (...)
        From −90° to 90°.

    Raises
    ------
    ValueError
        If the length of the last axis is not 3, or `unit` is unknown.

    Examples
    --------
    >>> from pymc_geodesic.directional import to_declination_inclination
    >>> declination, inclination = to_declination_inclination([0.0, -1.0, 1.0])
    >>> float(declination), float(inclination)
    (270.0, 45.0)
    """
    declination, inclination = to_lonlat(vectors, unit=unit)
    return declination % (2 * np.pi * units_per_radian(unit)), inclination


def from_declination_inclination(
    declination: ArrayLike, inclination: ArrayLike, *, unit: str = "deg"
) -> np.ndarray:
    r"""Return unit vectors :math:`(\cos I\cos D, \cos I\sin D, \sin I)`: north, east, down.

    Parameters
    ----------
    declination, inclination : array_like
        D, clockwise from north, and I, positive downward, with shapes that broadcast.
    unit : {"deg", "rad"}
        Unit of both.

    Returns
    -------
    numpy.ndarray, shape (..., 3)

    Raises
    ------
    ValueError
        If an inclination is not between −90° and 90°, or `unit` is unknown.

    Examples
    --------
    >>> from pymc_geodesic.directional import from_declination_inclination
    >>> from_declination_inclination(180.0, 60.0).round(3).tolist()
    [-0.5, 0.0, 0.866]
    """
    try:
        return from_lonlat(declination, inclination, unit=unit)
    except ValueError as error:
        raise ValueError(str(error).replace("`lat`", "`inclination`")) from None


def _components(vectors: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    vectors = np.asarray(vectors, dtype=float)
    if vectors.shape[-1:] != (3,):
        raise ValueError(f"The last axis must hold three components; the shape is {vectors.shape}.")
    return vectors[..., 0], vectors[..., 1], vectors[..., 2]
