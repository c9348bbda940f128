"""The data containers of a model that hold a sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass

from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable


@dataclass(frozen=True)
class SparseContainers:
    """Data containers of a `SparseData`.

    Attributes
    ----------
    values, columns : SharedVariable, shape (nnz,)
        Non-zeros and their columns.
    rows : SharedVariable, shape (n, 2)
        Where each row begins and ends.
    width : int
        Columns of the matrix.
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


def containers_of(model: Model, name: str) -> list[SharedVariable]:
    """Find all containers of data that users know by one name: one, or the three of a matrix.

    Parameters
    ----------
    model : pymc.Model
    name : str
        Of a data container or a `SparseData`; empty for any other.
    """
    found = sparse_containers(model, name)
    if found is not None:
        return [found.values, found.columns, found.rows]
    container = model.named_vars.get(name)
    return [container] if isinstance(container, SharedVariable) else []
