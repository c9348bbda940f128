"""The log-density of a model by the rows of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.log_density import Density, density_of
from pymc_geodesic.densities.row_sums import check_row_sums
from pymc_geodesic.densities.total_sizes import warn_of_other_totals
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.minibatches.source import RowSource

__all__ = ["RowDensity"]


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

    Attributes
    ----------
    total_size : int
        N, the rows that the log-density stands for.
    minibatch : Density
        Of as many rows as a minibatch of the source has.

    Raises
    ------
    ValueError
        If the log-density is no sum over the rows.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        source: RowSource,
        total_size: int | None = None,
    ) -> None:
        self.model = model
        self.variables = list(variables)
        self.source = source
        self.total_size = total_size or source.n_rows
        self.minibatch = self.of_rows()
        rows = self.minibatch.rows
        if rows:
            warn_of_other_totals(model, source, total_size)
            # of single rows, the first axis would broadcast against any other number of rows
            broadcasts = min(row.block.type.shape[0] for row in rows) == 1
            sums = self.of_rows(2) if broadcasts else self.minibatch
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
        return density_of(
            self.model,
            self.variables,
            seen,
            scale=self.total_size / self.source.batch_size if scale is None else scale,
            without=self._left_out,
        )

    @property
    def _left_out(self) -> list[TensorVariable]:
        """Random variables whose own terms are no part of it."""
        return []
