"""How forty single people spend their money, as directions."""

import os
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.datasets.folder import read_arrays

ORIGIN = (
    "The file 'household.npz' holds `X` (40, 4), expenditures in Hong Kong dollars, `cols` (4,), "
    "the names of the columns, and `gender` (40,): the data set `household` of the R package "
    "HSAUR3 (https://cran.r-project.org/package=HSAUR3). Export it from R and store it with "
    "`numpy.savez`."
)


@dataclass(frozen=True)
class Household:
    """Shares of expenditure as unit vectors.

    Parameters
    ----------
    direction : numpy.ndarray, shape (40, 4)
        Expenditures of each household scaled to unit length.
    gender : numpy.ndarray of str, shape (40,)
        ``"female"`` or ``"male"``.
    goods : numpy.ndarray of str, shape (4,)
        What each column is spent on.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import Household
    >>> Household(np.eye(2), np.array(["female", "male"]), np.array(["food", "rest"])).goods
    array(['food', 'rest'], dtype='<U4')
    """

    direction: np.ndarray
    gender: np.ndarray
    goods: np.ndarray


def load_household(data_home: str | os.PathLike | None = None) -> Household:
    """Load household expenditures, the example of the movMF paper.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``household.npz``; by default the one named by the environment
        variable ``PYMC_GEODESIC_DATA``.

    Returns
    -------
    Household

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message says where the data comes from.

    References
    ----------
    .. [1] K. Hornik, B. Grün. "movMF: An R Package for Fitting Mixtures of von Mises-Fisher
       Distributions", Journal of Statistical Software 58(10), 2014.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_household
    >>> load_household("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'household.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays("household.npz", data_home=data_home, origin=ORIGIN)
    spent = arrays["X"].astype(np.float64)
    return Household(
        direction=spent / np.linalg.norm(spent, axis=1, keepdims=True),
        gender=arrays["gender"],
        goods=arrays["cols"],
    )
