"""Directions measured in the sky and in the wind."""

import os
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.datasets.folder import read_arrays

ORIGIN = (
    "The file 'directional.npz' holds the arrays `comets` (3798, 3) and `planets` (9, 3), unit "
    "normals (sin i sin om, -sin i cos om, cos i) of the orbits in the data sets `comets` and "
    "`planets` of the R package sphunif (https://cran.r-project.org/package=sphunif; from the JPL "
    "Small-Body Database), and `wind_angle` (310,), radians, the data set `wind` of the R package "
    "circular (https://cran.r-project.org/package=circular). Export them from R and store them "
    "with `numpy.savez`."
)


@dataclass(frozen=True)
class Directional:
    """Three samples of directions.

    Parameters
    ----------
    comets : numpy.ndarray, shape (3798, 3)
        Unit normals of comet orbits.
    planets : numpy.ndarray, shape (9, 3)
        Unit normals of the orbits of the planets and Pluto.
    wind : numpy.ndarray, shape (310, 2)
        Wind directions as points (cos a, sin a) on the circle.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import Directional
    >>> Directional(comets=np.eye(3), planets=np.eye(3), wind=np.eye(2)).wind.shape
    (2, 2)
    """

    comets: np.ndarray
    planets: np.ndarray
    wind: np.ndarray


def load_directional(data_home: str | os.PathLike | None = None) -> Directional:
    """Load orbit normals of comets and planets, and wind directions.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``directional.npz``; by default the one named by the environment
        variable ``PYMC_GEODESIC_DATA``.

    Returns
    -------
    Directional
        Unit vectors in double precision.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message says where the data comes from.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_directional
    >>> load_directional("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'directional.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays("directional.npz", data_home=data_home, origin=ORIGIN)
    angle = arrays["wind_angle"].astype(np.float64)
    return Directional(
        comets=_unit_rows(arrays["comets"]),
        planets=_unit_rows(arrays["planets"]),
        wind=np.column_stack([np.cos(angle), np.sin(angle)]),
    )


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    """Scale rows stored in single precision to unit length in double precision."""
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
