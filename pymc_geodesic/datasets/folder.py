"""Files of the data folder: arrays and sparse matrices in ``.npz`` archives."""

import os
from pathlib import Path

import numpy as np
from scipy import sparse

VARIABLE = "PYMC_GEODESIC_DATA"
"""Environment variable that names the data folder."""


def read_arrays(
    filename: str, *, data_home: str | os.PathLike | None, origin: str
) -> dict[str, np.ndarray]:
    """Read the arrays of one ``.npz`` file from the data folder.

    Parameters
    ----------
    filename : str
        Name of the file inside the data folder.
    data_home : path-like or None
        The data folder; `None` means the folder named by the environment variable
        ``PYMC_GEODESIC_DATA``.
    origin : str
        Source of the data and arrays that the file must contain, for the error message.

    Returns
    -------
    dict of str to numpy.ndarray
        All arrays of the file by name.

    Raises
    ------
    FileNotFoundError
        If no folder is named or the file is not in it; the message ends with `origin`.

    Examples
    --------
    >>> from pymc_geodesic.datasets.folder import read_arrays
    >>> read_arrays("tides.npz", data_home="nowhere", origin="Measured at the pier.")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'tides.npz' in the data folder 'nowhere'. ...
    """
    folder = data_home if data_home is not None else os.environ.get(VARIABLE)
    remedy = (
        "Pass the folder that contains it as `data_home` or name it in the environment variable "
        f"{VARIABLE}. {origin}"
    )
    if folder is None:
        raise FileNotFoundError(f"No data folder is set to read {filename!r} from. {remedy}")
    path = Path(folder) / filename
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {filename!r} in the data folder {os.fspath(folder)!r}. {remedy}"
        )
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def sparse_rows(arrays: dict[str, np.ndarray], prefix: str) -> sparse.csr_matrix:
    """Return the CSR matrix stored as ``{prefix}_data``, ``_indices``, ``_indptr``, ``_shape``.

    Parameters
    ----------
    arrays : dict of str to numpy.ndarray
        The arrays of a file.
    prefix : str
        Prefix of the names of the four arrays.

    Returns
    -------
    scipy.sparse.csr_matrix of float64

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets.folder import sparse_arrays, sparse_rows
    >>> rows = sparse.csr_matrix(np.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> sparse_rows(sparse_arrays(rows, "X"), "X").toarray()
    array([[0., 2.],
           [1., 0.]])
    """
    return sparse.csr_matrix(
        (
            arrays[f"{prefix}_data"].astype(np.float64),
            arrays[f"{prefix}_indices"],
            arrays[f"{prefix}_indptr"],
        ),
        shape=tuple(arrays[f"{prefix}_shape"]),
    )


def sparse_arrays(rows: sparse.csr_matrix, prefix: str) -> dict[str, np.ndarray]:
    """Return the four arrays of a CSR matrix that `sparse_rows` reads.

    `scipy.sparse.save_npz` writes one matrix to a file; the files of this package contain several,
    with labels and words.

    Parameters
    ----------
    rows : scipy.sparse.csr_matrix
        The matrix.
    prefix : str
        Prefix of the names of the arrays.

    Returns
    -------
    dict of str to numpy.ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets.folder import sparse_arrays
    >>> sorted(sparse_arrays(sparse.csr_matrix(np.eye(2)), "X"))
    ['X_data', 'X_indices', 'X_indptr', 'X_shape']
    """
    return {
        f"{prefix}_data": rows.data,
        f"{prefix}_indices": rows.indices,
        f"{prefix}_indptr": rows.indptr,
        f"{prefix}_shape": np.asarray(rows.shape),
    }
