"""Data container for a sparse design matrix, and validation of sparse matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pymc.model import Model, modelcontext
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor import _as_tensor_variable
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.ops.sparse_dot import SparseDot


def canonical_rows(matrix: Any, what: str) -> sparse.csr_array:
    """Rows of a SciPy sparse matrix in canonical format: sorted columns without duplicates.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array, shape (n, d)
        Any format; not modified.
    what : str
        Description of the matrix in error messages.

    Returns
    -------
    scipy.sparse.csr_array, shape (n, d)
        Shares memory with ``matrix`` if it is in this format.

    Raises
    ------
    ValueError
        If there are NaN or infinity, or columns outside the shape.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.sparse.data import canonical_rows
    >>> twice = sparse.coo_array(([1, 2], ([0, 0], [1, 1])), shape=(1, 3))
    >>> canonical_rows(twice, "the matrix").toarray()
    array([[0., 3., 0.]])
    """
    rows = sparse.csr_array(matrix)
    # compiled products do not check the columns, and neither does SciPy
    if rows.nnz and not 0 <= rows.indices.min() <= rows.indices.max() < rows.shape[1]:
        raise ValueError(
            f"{what} has entries in columns outside 0 to {rows.shape[1] - 1}; "
            "make the matrix with the right shape"
        )
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(pytensor.config.floatX)
    if not np.isfinite(rows.data).all():
        raise ValueError(f"{what} holds NaN or infinity; drop or impute them first")
    return rows


@dataclass(frozen=True)
class SparseContainers:
    """Data containers of a `SparseData`.

    Attributes
    ----------
    values, columns : SharedVariable, shape (nnz,)
        Non-zeros and their columns.
    rows : SharedVariable, shape (n, 2)
        Begin and end of each row.
    width : int
        Number of columns of the matrix.
    """

    values: SharedVariable
    columns: SharedVariable
    rows: SharedVariable
    width: int


def sparse_containers(model: Model, name: str) -> SparseContainers | None:
    """Find the containers of a `SparseData` by its name.

    Parameters
    ----------
    model : pymc.Model
    name : str

    Returns
    -------
    SparseContainers or None
        None if the model has no sparse matrix of this name.
    """
    found = [model.named_vars.get(f"{name}_{part}") for part in ("values", "columns", "rows")]
    if not all(isinstance(part, SharedVariable) for part in found):
        return None
    values, columns, rows = found
    width = getattr(rows.tag, "width", None)
    return None if width is None else SparseContainers(values, columns, rows, width)


def get_containers(model: Model, name: str) -> list[SharedVariable]:
    """Find the containers of data by name: one, or the three of a sparse matrix.

    Parameters
    ----------
    model : pymc.Model
    name : str
        Name of a data container or a `SparseData`; the list is empty for others.
    """
    found = sparse_containers(model, name)
    if found is not None:
        return [found.values, found.columns, found.rows]
    container = model.named_vars.get(name)
    return [container] if isinstance(container, SharedVariable) else []


def _canonical(name: str, matrix: Any) -> sparse.csr_array:
    """Rows of any SciPy sparse matrix in canonical format."""
    if not sparse.issparse(matrix) or matrix.ndim != 2:
        raise TypeError(
            f"SparseData {name!r} needs a scipy.sparse matrix, got {type(matrix).__name__}; "
            "use pm.Data for dense arrays, or scipy.sparse.csr_array(array)"
        )
    if matrix.dtype.kind == "c":
        raise TypeError(f"SparseData {name!r} holds complex numbers")
    return canonical_rows(matrix, f"SparseData {name!r}")


def _arrays(rows: sparse.csr_array) -> dict[str, np.ndarray]:
    bounds = np.column_stack([rows.indptr[:-1], rows.indptr[1:]]).astype(np.int64)
    return {"values": rows.data, "columns": rows.indices.astype(np.int32), "rows": bounds}


class SparseData:
    r"""Data container for a sparse design matrix.

    It is created inside a model, like `pymc.Data`. The time of the product ``X @ w`` and of its
    gradient is proportional to the non-zeros, for all rows and for minibatches of them, as in
    ``SGGMC(batch_size=100, minibatch=["X", "y"])``.

    .. math:: (Xw)_i = \sum_{k \in \text{row } i} \mathrm{values}_k\, w_{\mathrm{columns}_k}

    Parameters
    ----------
    name : str
        The data are registered as three ordinary containers: ``name_values`` and
        ``name_columns``, shape (nnz,), and ``name_rows``, shape (n, 2), the begin and end of each
        row. ArviZ keeps them in ``constant_data``.
    matrix : scipy.sparse matrix or array, shape (n, d)
        CSR; other formats are converted. Single precision is kept, and integers become
        floating-point numbers.
    dims : tuple of str, optional
        Names of the two dimensions. Dimensions that the model does not have get the length of the
        matrix.
    model : pymc.Model, optional
        Taken from the context by default.

    Attributes
    ----------
    values, columns, rows : SharedVariable
        The three containers.
    width : int
        d, which `set_value` does not change.

    Raises
    ------
    TypeError
        If ``matrix`` is not a two-dimensional sparse matrix of real numbers.
    ValueError
        If it contains NaN or infinity or columns outside its shape, ``dims`` does not have two
        names, a dimension has another length, or the model has another variable of this name.

    Notes
    -----
    The products run on the Numba and C backends of PyTensor; there is no implementation for JAX.

    `pymc.set_data` with ``{"X": ...}`` raises ``KeyError: 'X'``, because the model has the three
    containers only. Use ``X.set_value(matrix)`` or
    ``SparseData.find("X", model).set_value(matrix)``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> from scipy import sparse
    >>> words = sparse.random_array((50, 1000), density=0.01, rng=np.random.default_rng(1))
    >>> with pm.Model() as model:
    ...     X = pg.SparseData("X", words)
    ...     w = pm.Normal("w", shape=1000)
    ...     y = pm.Normal("y", X @ w, 1.0, observed=np.zeros(50))
    >>> X.get_value().shape
    (50, 1000)
    >>> [data.name for data in model.data_vars]
    ['X_values', 'X_columns', 'X_rows']
    """

    def __init__(
        self,
        name: str,
        matrix: Any,
        *,
        dims: Sequence[str] | None = None,
        model: Model | None = None,
    ) -> None:
        if dims is not None and (isinstance(dims, str) or len(dims) != 2):
            raise ValueError(f"dims of SparseData {name!r} must be two names, got {dims!r}")
        rows = _canonical(name, matrix)
        self._model = modelcontext(model)
        self.name = self._model.name_for(name)
        if sparse_containers(self._model, self.name) is not None or self.name in self._model:
            raise ValueError(f"the model has a variable {self.name!r} already; use another name")
        self.width = int(rows.shape[1])
        # pm.Data would convert the values to the default precision
        shared = {
            part: pytensor.shared(array, f"{self.name}_{part}")
            for part, array in _arrays(rows).items()
        }
        containers = SparseContainers(**shared, width=self.width)
        containers.rows.tag.width = self.width  # for `sparse_containers`
        self.values, self.columns, self.rows = (
            containers.values,
            containers.columns,
            containers.rows,
        )
        if dims is not None:
            dims = self._named_dimensions(*dims)
        self._model.register_data_var(self.values)
        self._model.register_data_var(self.columns)
        self._model.register_data_var(self.rows, dims=dims)

    @classmethod
    def find(cls, name: str, model: Model | None = None) -> SparseData:
        """Return the sparse matrix of a model by its name.

        Parameters
        ----------
        name : str
        model : pymc.Model, optional
            Taken from the context by default.

        Returns
        -------
        SparseData
            With the same containers: `set_value` changes the data of the model.

        Raises
        ------
        ValueError
            If the model has no sparse matrix of this name.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc_geodesic as pg
        >>> from scipy import sparse
        >>> model = pg.svm.linear_svm(sparse.eye_array(3, format="csr"), [1, -1, 1])
        >>> X = pg.SparseData.find("X", model=model)
        >>> X.set_value(sparse.csr_array(np.ones((5, 3))))
        >>> X.get_value().shape
        (5, 3)
        """
        model = modelcontext(model)
        containers = sparse_containers(model, name)
        if containers is None:
            raise ValueError(
                f"the model has no SparseData {name!r}; its data containers are "
                f"{[data.name for data in model.data_vars]}"
            )
        found = cls.__new__(cls)
        found._model, found.name, found.width = model, name, containers.width
        found.values, found.columns, found.rows = (
            containers.values,
            containers.columns,
            containers.rows,
        )
        return found

    def _named_dimensions(self, row: str, column: str) -> tuple[str, str]:
        """Add the two dimensions to the model; return those of the container of rows."""
        n_rows = len(self.rows.get_value(borrow=True))
        for dim, symbolic, length in (
            (row, self.rows.shape[0], n_rows),
            (column, self.width, self.width),
        ):
            if dim not in self._model.dim_lengths:
                self._model.add_coord(dim, length=symbolic)
            known = int(self._model.dim_lengths[dim].eval())
            if known != length:
                axis = "rows" if dim == row else "columns"
                raise ValueError(
                    f"SparseData {self.name!r} has {length} {axis}, but dimension {dim!r} has "
                    f"length {known}"
                )
        bounds = f"{self.name}_bounds"
        self._model.add_coord(bounds, ("begin", "end"))
        return row, bounds

    @property
    def shape(self) -> tuple[TensorVariable, int]:
        """Number of rows, symbolic, and number of columns."""
        return self.rows.shape[0], self.width

    def dot(self, weights: Any) -> TensorVariable:
        """Multiply by a vector or a matrix.

        Parameters
        ----------
        weights : tensor_like, shape (d,) or (d, k)

        Returns
        -------
        TensorVariable, shape (n,) or (n, k)

        Raises
        ------
        ValueError
            If ``weights`` has another length or number of axes.
        """
        return SparseDot(self.width)(self.values, self.columns, self.rows, weights)

    def __matmul__(self, weights: Any) -> TensorVariable:
        """Multiply by a vector or a matrix, as `dot` does."""
        return self.dot(weights)

    def get_value(self) -> sparse.csr_array:
        """Return the matrix in SciPy's format, shape (n, d)."""
        rows = self.rows.get_value(borrow=True)
        starts = np.concatenate([rows[:1, 0], rows[:, 1]])
        return sparse.csr_array(
            (self.values.get_value(), self.columns.get_value(), starts),
            shape=(len(rows), self.width),
        )

    def set_value(self, matrix: Any, coords: Mapping[str, Sequence] | None = None) -> None:
        """Set other rows, as `pymc.set_data` does.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array, shape (m, d)
        coords : mapping, optional
            New coordinates of the first dimension, if it has any.

        Raises
        ------
        TypeError
            If ``matrix`` is not a two-dimensional sparse matrix.
        ValueError
            If it has another number of columns, or contains NaN or infinity.
        """
        rows = _canonical(self.name, matrix)
        if rows.shape[1] != self.width:
            raise ValueError(
                f"SparseData {self.name!r} has {self.width} columns, the new rows have "
                f"{rows.shape[1]}; use the same vocabulary or features"
            )
        arrays = _arrays(rows)
        self._model.set_data(
            self.rows.name, arrays["rows"], coords=None if coords is None else dict(coords)
        )
        self.rows.set_value(arrays["rows"])
        self.values.set_value(arrays["values"].astype(self.values.type.dtype, copy=False))
        self.columns.set_value(arrays["columns"])


@_as_tensor_variable.register(SparseData)
def _no_tensor(data: SparseData, *args: Any, **kwargs: Any) -> TensorVariable:
    """Raise TypeError: a dense array would have all the zeros."""
    raise TypeError(
        f"SparseData {data.name!r} is not a tensor; use its product {data.name} @ weights"
    )
