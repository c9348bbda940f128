"""The model of one shard: its rows in the data containers, and what the other shards say."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.distributed.pymc_parts import SharedVariable
from pymc_geodesic.distributed.shards import LoadedRows
from pymc_geodesic.distributed.surrogates import Quadratic
from pymc_geodesic.sparse import SparseData, containers_of, sparse_containers


def place_rows(
    model: pm.Model, arrays: Mapping[str, LoadedRows], names: Sequence[str] | None = None
) -> None:
    """Put rows in the data containers of a model, in the precision of these.

    Parameters
    ----------
    model : pymc.Model
    arrays : mapping of str to ndarray or sparse matrix
    names : sequence of str, optional
        Containers whose rows must be there, and no other.

    Raises
    ------
    ValueError
        If there is no such container, its rows have another shape or numbers that it cannot hold,
        or the rows of one are missing.
    """
    for name, array in arrays.items():
        if sparse_containers(model, name) is not None:
            _place_sparse(model, name, array)
        else:
            _place_dense(model, name, array)
    _check_names(list(arrays), arrays if names is None else names)


def _place_dense(model: pm.Model, name: str, array: LoadedRows) -> None:
    container = model.named_vars.get(name)
    if container is None or container not in model.data_vars:
        raise ValueError(f"a shard names {name!r}, but the data containers are {_known(model)}")
    before = container.get_value(borrow=True)
    if sparse.issparse(array):
        raise ValueError(
            f"a shard has a sparse matrix for {name!r}, which is a dense container: make it "
            f"SparseData({name!r}, matrix) in the model"
        )
    if array.shape[1:] != before.shape[1:]:
        raise ValueError(
            f"rows of {name!r} have shape {array.shape[1:]} in a shard and "
            f"{before.shape[1:]} in the model"
        )
    container.set_value(_converted(name, array, before.dtype), borrow=True)
    _set_rows(model, name, len(array))


def _place_sparse(model: pm.Model, name: str, matrix: LoadedRows) -> None:
    if not sparse.issparse(matrix):
        raise ValueError(
            f"a shard has a dense array for {name!r}, which is SparseData in the model: make it "
            "scipy.sparse.csr_array(array), or write it by scipy.sparse.save_npz"
        )
    data = SparseData.find(name, model)
    _set_rows(model, data.rows.name, matrix.shape[0])
    with warnings.catch_warnings():
        # a dimension of several containers, which get their rows one after the other
        warnings.filterwarnings("ignore", message="You are resizing a variable with dimension")
        data.set_value(matrix)


def _set_rows(model: pm.Model, container: str, n_rows: int) -> None:
    """Set the length of the first dimension of a container, where it does not follow by itself."""
    dims = model.named_vars_to_dims.get(container)
    if not dims or dims[0] is None or not isinstance(model.dim_lengths[dims[0]], SharedVariable):
        return
    labels = None if model.coords.get(dims[0]) is None else np.arange(n_rows)
    model.set_dim(dims[0], n_rows, coord_values=labels)


def _known(model: pm.Model) -> list[str]:
    """Names of the data containers, one for a sparse matrix."""
    names = [data.name for data in model.data_vars]
    matrices = [name.removesuffix("_rows") for name in names if name.endswith("_rows")]
    matrices = [name for name in matrices if sparse_containers(model, name) is not None]
    parts = {part.name for name in matrices for part in containers_of(model, name)}
    return [name for name in names if name not in parts] + matrices


def _check_names(given: Sequence[str], named: Collection[str]) -> None:
    """Refuse a shard without rows of a container, which would keep those of the model."""
    if missing := [name for name in named if name not in given]:
        raise ValueError(
            f"a shard has no rows of {missing}, which minibatch= names; every shard needs the rows "
            f"of {list(named)}"
        )
    if others := [name for name in given if name not in named]:
        raise ValueError(
            f"a shard has rows of {others}, which minibatch= does not name; add them to minibatch="
        )


def _converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return rows in the type of the container, which an integer one cannot do to all numbers."""
    with np.errstate(invalid="ignore"):  # NaN is no integer, and found below
        converted = array.astype(dtype, copy=False)
    if dtype.kind in "iub" and converted is not array and not np.array_equal(converted, array):
        raise ValueError(
            f"a shard has {array.dtype} rows of {name!r}, which the data container cannot hold as "
            f"{dtype}: make it of {array.dtype} numbers in the model"
        )
    return converted


def _coordinates(model: pm.Model, variable: ManifoldVariable) -> TensorVariable:
    """Coordinates that the dynamics move, as a function of the random variable."""
    rv, transform = variable.rv, model.rvs_to_transforms[variable.rv]
    if variable.on_manifold or transform is None:
        return rv.ravel()
    return transform.forward(rv, *rv.owner.inputs).ravel()


class ConduciveTerm:
    """A quadratic term of a log-density, zero until it is set.

    Parameters
    ----------
    model : pymc.Model
        Gets it as a potential.
    variables : list of ManifoldVariable
        In the order of the coordinates.
    """

    def __init__(self, model: pm.Model, variables: Sequence[ManifoldVariable]) -> None:
        size = sum(variable.rows * variable.manifold.size for variable in variables)
        zero = Quadratic(np.zeros(size), np.zeros(size), np.zeros((size, size)))
        self._shared: list[Any] = [
            pytensor.shared(value, name=f"conducive_{name}", shape=value.shape)
            for name, value in zero._asdict().items()
        ]
        centre, slope, curvature = self._shared
        away = pt.concatenate([_coordinates(model, each) for each in variables]) - centre
        with model:
            pm.Potential("conducive", pt.dot(slope + 0.5 * pt.dot(curvature, away), away))

    def use(self, term: Quadratic) -> None:
        """Set the term; who compiled the model must look at its data again."""
        for shared, value in zip(self._shared, term, strict=True):
            shared.set_value(value)
