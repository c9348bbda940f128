"""Shards: loading of rows, data containers that hold them, and the step method of each shard."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from scipy import sparse

from pymc_geodesic.densities.row_dependence import observed_with_total_size
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.runs.identity import serialize_step
from pymc_geodesic.sparse import SparseData, get_containers, sparse_containers
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sgld import SGLD
from pymc_geodesic.steps.sgrld import SGRLD
from pymc_geodesic.steps.ssgnht import SSGNHT
from pymc_geodesic.steps.step import GeodesicStep

type LoadedRows = np.ndarray | sparse.csr_array
type Rows = LoadedRows | sparse.spmatrix | sparse.sparray | str | os.PathLike | Callable[[], Any]
type Shard = Mapping[str, Rows] | Callable[[], Mapping[str, Any]]
"""Rows by data container: arrays, sparse matrices, paths of ``.npy`` files or of ``.npz`` files of
`scipy.sparse.save_npz`, or functions; or one function that returns such a mapping."""


def validate_shards(shards: Any) -> list[Shard]:
    """Validate the list of shards.

    Raises
    ------
    ValueError
        If it is not a list, is empty, or an entry is neither a mapping nor a function.
    """
    if isinstance(shards, Mapping) or callable(shards):
        raise ValueError("shards= is a list with one entry for each shard; put this one in a list")
    listed = list(shards)
    if not listed:
        raise ValueError("shards= is empty; give the rows of at least one shard")
    for number, shard in enumerate(listed):
        if not (callable(shard) or (isinstance(shard, Mapping) and shard)):
            raise ValueError(
                f"shard {number} is {type(shard).__name__}: give a mapping from data containers to "
                "arrays, paths or functions, or a function that returns such a mapping of arrays"
            )
    return listed


def load_rows(shard: Shard) -> dict[str, LoadedRows]:
    """Load the rows of a shard, on the machine that keeps them.

    Raises
    ------
    ValueError
        If the containers have different numbers of rows, or none.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributed.shards import load_rows
    >>> load_rows({"x": np.arange(3), "y": lambda: np.ones(3)})["y"]
    array([1., 1., 1.])
    """
    named = shard() if callable(shard) else shard
    arrays = {name: _load_array(rows) for name, rows in named.items()}
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise ValueError(
            f"the containers of a shard must have the same positive number of rows, got {lengths}"
        )
    return arrays


def _load_array(rows: Any) -> LoadedRows:
    if callable(rows):
        rows = rows()
    if isinstance(rows, str | os.PathLike):
        rows = sparse.load_npz(rows) if os.fspath(rows).endswith(".npz") else np.load(rows)
    return sparse.csr_array(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)


def set_rows(
    model: pm.Model, arrays: Mapping[str, LoadedRows], names: Sequence[str] | None = None
) -> None:
    """Set the rows of data containers of a model, converted to their dtype.

    Parameters
    ----------
    model : pymc.Model
    arrays : mapping of str to ndarray or sparse matrix
    names : sequence of str, optional
        Containers that `arrays` must have rows of, and no others.

    Raises
    ------
    ValueError
        If a container does not exist, its rows have another shape, its dtype cannot represent the
        values, or the rows of one are missing.
    """
    for name, array in arrays.items():
        if sparse_containers(model, name) is not None:
            _set_sparse(model, name, array)
        else:
            _set_dense(model, name, array)
    _validate_names(list(arrays), arrays if names is None else names)


def _set_dense(model: pm.Model, name: str, array: LoadedRows) -> None:
    container = model.named_vars.get(name)
    if container is None or container not in model.data_vars:
        raise ValueError(
            f"a shard names {name!r}, but the data containers are {_container_names(model)}"
        )
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
    _resize_dim(model, name, len(array))


def _set_sparse(model: pm.Model, name: str, matrix: LoadedRows) -> None:
    if not sparse.issparse(matrix):
        raise ValueError(
            f"a shard has a dense array for {name!r}, which is SparseData in the model: make it "
            "scipy.sparse.csr_array(array), or write it by scipy.sparse.save_npz"
        )
    data = SparseData.find(name, model)
    _resize_dim(model, data.rows.name, matrix.shape[0])
    with warnings.catch_warnings():
        # containers that share a dimension are resized one after the other
        warnings.filterwarnings("ignore", message="You are resizing a variable with dimension")
        data.set_value(matrix)


def _resize_dim(model: pm.Model, container: str, n_rows: int) -> None:
    """Set the length of the first dimension of a container, if it is a shared variable."""
    dims = model.named_vars_to_dims.get(container)
    if not dims or dims[0] is None or not hasattr(model.dim_lengths[dims[0]], "set_value"):
        return
    labels = None if model.coords.get(dims[0]) is None else np.arange(n_rows)
    model.set_dim(dims[0], n_rows, coord_values=labels)


def _container_names(model: pm.Model) -> list[str]:
    """Names of the data containers, one for each sparse matrix."""
    names = [data.name for data in model.data_vars]
    matrices = [name.removesuffix("_rows") for name in names if name.endswith("_rows")]
    matrices = [name for name in matrices if sparse_containers(model, name) is not None]
    parts = {part.name for name in matrices for part in get_containers(model, name)}
    return [name for name in names if name not in parts] + matrices


def _validate_names(given: Sequence[str], named: Collection[str]) -> None:
    """Validate that a shard has rows of exactly the named containers."""
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
    """Rows in the dtype of their container, which must represent them exactly if it is integer."""
    with np.errstate(invalid="ignore"):  # NaN is found below
        converted = array.astype(dtype, copy=False)
    if dtype.kind in "iub" and converted is not array and not np.array_equal(converted, array):
        raise ValueError(
            f"a shard has {array.dtype} rows of {name!r}, which the data container cannot hold as "
            f"{dtype}: use {array.dtype} values in the model"
        )
    return converted


@dataclass(frozen=True)
class StepSpec:
    """Class and arguments of a step method, from which every worker constructs its own.

    Attributes
    ----------
    step_class : type
    arguments : dict
        Keyword arguments other than ``model`` and ``total_size``; local variables by name.
    """

    step_class: type[GeodesicStep]
    arguments: dict[str, Any]

    def variables(self, model: pm.Model) -> list[ManifoldVariable]:
        """Global variables, in the order of the coordinates of the step."""
        found = manifold_variables(
            model,
            self.arguments.get("vars"),
            self.arguments.get("manifolds"),
            manifold=Euclidean if issubclass(self.step_class, SGLD | SSGNHT) else None,
        )
        shared = [variable for variable in found if variable.name not in self.local_names]
        return sorted(shared, key=lambda variable: not variable.manifold.is_flat)

    @property
    def local_names(self) -> list[str]:
        """Variables with one value per row, which are not sent between workers."""
        return list(self.arguments.get("local") or ())

    @property
    def row_names(self) -> list[str]:
        """Data containers whose rows the shards hold."""
        named = self.arguments["minibatch"]
        return [named] if isinstance(named, str) else list(named)

    @property
    def continues_minibatch_order(self) -> bool:
        """Whether the minibatch order of a shard continues in the next visit.

        Visits to documents are shorter than an epoch. If each started a new order, some documents
        would be left out for long, and the gradient noise of an epoch would not sum to zero.
        """
        return bool(self.local_names)

    def build(self, model: pm.Model, total_size: int) -> GeodesicStep:
        """Construct the step for the rows in the model, which represent `total_size` rows."""
        step_class: Any = self.step_class
        with warnings.catch_warnings():
            # the rows of a shard represent those of other shards, which differ
            warnings.filterwarnings("ignore", message="total_size=", category=UserWarning)
            return step_class(model=model, total_size=total_size, **self.arguments)


def step_spec(step: Any, model: pm.Model) -> StepSpec:
    """Specification of a step method, of its class, or of a `functools.partial` of its class.

    Raises
    ------
    ValueError
        If it is not a step method of the package that samples all free variables with minibatches
        of named rows.
    """
    if isinstance(step, functools.partial):
        step_class, arguments = step.func, dict(step.keywords)
        if step.args:
            raise ValueError("give the arguments of step= by name, as in partial(SGGMC, vars=[x])")
    elif isinstance(step, type):
        step_class, arguments = step, {}
    else:
        step_class = type(step)
        if issubclass(step_class, GeodesicStep):
            serialized = serialize_step(step)
            if serialized["lost"]:
                raise ValueError(f"step= cannot be sent to workers: {serialized['lost']}")
            arguments = {"vars": serialized["vars"], **serialized["kept"]}
    if (
        not (isinstance(step_class, type) and issubclass(step_class, GeodesicStep))
        or "total_size" not in inspect.signature(step_class).parameters
    ):
        raise ValueError(
            f"step={step!r} is not a step method of pymc_geodesic with minibatches. Pass one, "
            "such as SGGMC(batch_size=100, minibatch=[...])"
        )
    if not arguments.get("minibatch") or arguments.get("batches") is not None:
        raise ValueError(
            f"{step_class.__name__} needs minibatch=[...], the names of the data containers whose "
            "rows the shards hold, and batch_size="
        )
    for unused in ("total_size", "model", "rng"):
        arguments.pop(unused, None)
    if arguments.get("local") is not None:
        local = manifold_variables(model, arguments["local"], by_row=True)
        arguments["local"] = [variable.name for variable in local]
    spec = StepSpec(step_class, arguments)
    _validate_local(spec)
    sampled = [variable.name for variable in spec.variables(model)] + spec.local_names
    left = [rv.name for rv in model.free_RVs if rv.name not in sampled]
    if left:
        raise ValueError(
            f"one step method must sample all variables, but {left} is left to another; leave out "
            "vars="
        )
    if stated := observed_with_total_size(model, spec.row_names):
        raise ValueError(
            f"{stated[0]!r} has a total_size=, which would apply to every shard: leave total_size= "
            "out of the model"
        )
    return spec


def _validate_local(spec: StepSpec) -> None:
    """Reject local variables that cannot be drawn anew in every visit.

    Topic assignments of words are drawn independently of earlier visits. Markov chains on local
    variables, whose step size is adapted, are not.
    """
    if not spec.local_names:
        return
    if not issubclass(spec.step_class, SCIR | SGRLD):
        raise ValueError(
            f"local={spec.local_names} has one value per row, which "
            f"{spec.step_class.__name__} cannot sample on shards. Use SCIR or SGRLD for counts of "
            "words (topics.lda), and pymc.sample for other models"
        )
    if spec.arguments.get("control_variates"):
        raise ValueError(
            f"control_variates= is not available with local={spec.local_names}: topic assignments "
            "are random and depend on the topics; leave it out, and pass conducive=False"
        )
