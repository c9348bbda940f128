"""The log-density of a model by the rows of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from pymc.model import Model
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.log_density import Density, density_of
from pymc_geodesic.densities.row_indices import IndexCheck
from pymc_geodesic.densities.row_sums import check_row_sums
from pymc_geodesic.densities.total_sizes import warn_of_other_totals
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.source import RowSource


def _other_number(density: Density, block_sizes: set[int | None]) -> int | None:
    """Rows to build the density of once more, where the block fits data that are none of its rows.

    A block of a single row broadcasts against any number of them, and one of as many rows as an
    array that `minibatch=` leaves out goes with it row by row, though it holds other rows. Neither
    goes with a block of another length.
    """
    blocks = {row.block for row in density.rows}
    others = [each for each in graph_inputs(density.row_terms) if each not in blocks]
    taken = {length for each in others for length in getattr(each.type, "shape", ())}
    if block_sizes.isdisjoint(taken | {1}):
        return None
    return next(n for n in count(2) if n not in taken)


def _refuse_single_rows(model: Model, density: Density, source: RowSource) -> None:
    """Refuse a container with one row, as placeholders of streamed data have, that is not named."""
    rows = [found for name in source.names if (found := model.named_vars.get(name)) is not None]
    lengths = {found.get_value(borrow=True).shape[:1] for found in rows}
    if source.batch_size == 1 or lengths != {(1,)}:
        return
    of_rows = set(graph_inputs(density.row_terms))
    for copy, holder in density.arrays.items():
        if holder in model.data_vars and copy.type.shape[:1] == (1,) and copy in of_rows:
            message = (
                f"{copy.name!r} has one row, as the placeholders of minibatch="
                f"{list(source.names)} have, and would go with every row of a block: name it too, "
                "or make it a scalar if it belongs to no row"
            )
            raise ValueError(see(message, "minibatch"))


class RowDensity:
    """Log-density of a model that sees its rows in blocks.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables to differentiate by; kernel coordinates stand for them.
    source : RowSource
        Where the rows come from.
    total_size : int, optional
        N, where it is not the number of rows of the source.
    without : sequence of TensorVariable
        Random variables whose own terms are left out.
    rewrite : callable, optional
        Changes each log-density that is built, in place.

    Attributes
    ----------
    total_size : int
        N, the rows that the log-density stands for.
    minibatch : Density
        Of as many rows as a minibatch of the source has.

    Raises
    ------
    ValueError
        If the log-density is no sum over the rows, data that are not named have as many rows as
        a minibatch, or data point beyond an array.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        source: RowSource,
        total_size: int | None = None,
        *,
        without: Sequence[TensorVariable] = (),
        rewrite: Callable[[Density], None] | None = None,
    ) -> None:
        self.model = model
        self.variables = list(variables)
        self.source = source
        self._without, self._rewrite = list(without), rewrite
        self.total_size = total_size or source.n_rows
        self.minibatch = self.of_rows()
        self._indices = IndexCheck(model, self.variables, self.minibatch, source)
        self.check_data()
        rows = self.minibatch.rows
        if rows:
            _refuse_single_rows(model, self.minibatch, source)
            warn_of_other_totals(model, source, total_size)
            other = _other_number(self.minibatch, {row.block.type.shape[0] for row in rows})
            sums = self.minibatch if other is None else self.of_rows(other)
            check_row_sums(model, self.variables, sums, source)

    def of_rows(
        self,
        n_rows: int | None = None,
        *,
        scale: float | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> Density:
        """Build the log-density of another number of rows.

        Parameters
        ----------
        n_rows : int, optional
            As many as a minibatch has by default.
        scale : float, optional
            By which the log-density of the rows is multiplied: by default as those of a minibatch.
        arrays : mapping of str to ndarray, optional
            Rows of named containers, instead of those of the source.
        """
        seen = self.source.seen(n_rows)
        if arrays is not None and seen.arrays:
            seen = replace(seen, arrays=arrays)
        density = density_of(
            self.model,
            self.variables,
            seen,
            scale=self.total_size / self.source.batch_size if scale is None else scale,
            without=self._without,
        )
        if self._rewrite is not None:
            self._rewrite(density)
        return density

    def check_data(self) -> None:
        """Refuse data in memory that point beyond an array; see `IndexCheck`."""
        self._indices.check()

    def levels(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Compute the indices of rows into arrays, with the containers that hold them."""
        return self._indices.levels(rows)
