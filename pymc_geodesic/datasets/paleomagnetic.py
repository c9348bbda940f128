"""Directions of the ancient magnetic field, frozen into lava flows."""

import os
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.datasets.folder import read_arrays

ORIGIN = (
    "The file 'paleomagnetic.npz' holds site means of lava flows near McMurdo Sound, Antarctica, "
    "arrays of length 133: `mcmurdo_dec`, `mcmurdo_inc`, degrees, `mcmurdo_k`, Fisher's precision "
    "within the site, `mcmurdo_n`, the number of samples, `mcmurdo_polarity`, 'n', 'r' or 't', "
    "`mcmurdo_age`, millions of years, and `mcmurdo_lat`, `mcmurdo_lon`, degrees. They are in the "
    "Magnetics Information Consortium's database (https://www2.earthref.org/MagIC) with Lawrence "
    "et al. (2009, doi:10.1029/2008GC002072). Download the sites and store them with `numpy.savez`."
)


@dataclass(frozen=True)
class McMurdo:
    """Mean directions of the magnetic field at lava flows, one for each site.

    A direction is (cos I cos D, cos I sin D, sin I), D the declination and I the inclination: its
    components point north, east and down.

    Parameters
    ----------
    direction : numpy.ndarray, shape (133, 3)
        Unit vectors.
    kappa : numpy.ndarray, shape (133,)
        Fisher's estimate k of the concentration of the samples of a site.
    n_samples : numpy.ndarray of int, shape (133,)
        How many samples a site has.
    polarity : numpy.ndarray of str, shape (133,)
        ``"n"``, ``"r"`` or ``"t"``: normal, reversed or transitional.
    age : numpy.ndarray, shape (133,)
        Millions of years.
    latitude, longitude : numpy.ndarray, shape (133,)
        Where the sites are, degrees.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import McMurdo
    >>> one = np.ones(1)
    >>> down = np.array([[0.0, 0.0, 1.0]])
    >>> McMurdo(down, 90 * one, one.astype(int), np.array(["r"]), one, -78 * one, 167 * one).kappa
    array([90.])
    """

    direction: np.ndarray
    kappa: np.ndarray
    n_samples: np.ndarray
    polarity: np.ndarray
    age: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray


def load_mcmurdo(data_home: str | os.PathLike | None = None) -> McMurdo:
    """Load site mean directions of lava flows near McMurdo Sound.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``paleomagnetic.npz``; by default the one named by the environment
        variable ``PYMC_GEODESIC_DATA``.

    Returns
    -------
    McMurdo
        Unit vectors in double precision, with what is known of each site.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message says where the data comes from.

    References
    ----------
    .. [1] K. P. Lawrence, L. Tauxe, H. Staudigel, C. G. Constable, A. Koppers, W. McIntosh,
       C. L. Johnson. "Paleomagnetic field properties at high southern latitude", Geochemistry,
       Geophysics, Geosystems 10, Q01005, 2009.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_mcmurdo
    >>> load_mcmurdo("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'paleomagnetic.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays("paleomagnetic.npz", data_home=data_home, origin=ORIGIN)
    declination = np.deg2rad(arrays["mcmurdo_dec"].astype(np.float64))
    inclination = np.deg2rad(arrays["mcmurdo_inc"].astype(np.float64))
    level = np.cos(inclination)
    return McMurdo(
        direction=np.column_stack(
            [level * np.cos(declination), level * np.sin(declination), np.sin(inclination)]
        ),
        kappa=arrays["mcmurdo_k"],
        n_samples=arrays["mcmurdo_n"].astype(int),
        polarity=arrays["mcmurdo_polarity"],
        age=arrays["mcmurdo_age"],
        latitude=arrays["mcmurdo_lat"],
        longitude=arrays["mcmurdo_lon"],
    )
