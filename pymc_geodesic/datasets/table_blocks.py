"""Row blocks of a table for a model that was built on a sample of its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pymc_geodesic.datasets.bambi_design import BambiFeatures
from pymc_geodesic.datasets.blocks import Division
from pymc_geodesic.datasets.derived_columns import (
    ColumnFeatures,
    Computed,
    Derivation,
    DerivedArray,
    Features,
    Levels,
    Rows,
    is_numeric,
)
from pymc_geodesic.datasets.tables import Table, open_table

BLOCK_SIZE = 100_000
"""Default number of rows of a block."""

_SHOWN = 3
"""Number of levels that an error message lists."""


class TableBlocks:
    """Rows of a table for a model that was built on a sample of them; see `table_blocks`.

    Attributes
    ----------
    total_size : int
        N, the number of rows of the table.
    block_size : int

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from pymc_geodesic.datasets import table_blocks
    >>> table = pd.DataFrame({"age": [20.0, 40.0, 30.0, 50.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/people.parquet")
    ...     blocks = table_blocks(folder, like=table.head(2))
    >>> blocks.total_size
    4
    """

    def __init__(
        self,
        source: Any,
        like: Any,
        columns: Mapping[str, Any] | None,
        block_size: int | None,
        stretches: int,
    ) -> None:
        self._features: Features | None = _features_of(like)
        self._derived: dict[str, DerivedBlocks] = {}
        self._columns = dict(columns or {})
        self._table = open_table(source)
        self.total_size = self._table.n_rows
        if block_size is None:
            block_size = min(BLOCK_SIZE, self.total_size)
        self._division = Division(self.total_size, block_size, stretches)
        self.block_size = self._division.block_size

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "The blocks of table_blocks are those of a model: pass them to a step method, "
            "SGGMC(batch_size=500, batches=blocks)."
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_features": None}  # which has the rows of the sample

    def for_arrays(self, arrays: Mapping[str, np.ndarray]) -> DerivedBlocks:
        """Derive the arrays of a model from the columns of the table.

        Parameters
        ----------
        arrays : dict of str to ndarray, shape (n, ...)
            Arrays whose rows are those of the sample.

        Raises
        ------
        ValueError
            If an array does not follow from the columns of the sample, or the table does not have
            these columns, in the type of the sample, without missing values and with its levels.
        """
        key = _digest(arrays)
        if key not in self._derived:
            self._derived[key] = self._derive(arrays)
        return self._derived[key]

    def _derive(self, arrays: Mapping[str, np.ndarray]) -> DerivedBlocks:
        if self._features is None:
            raise ValueError(
                "table_blocks was unpickled, without the sample, for another model. Make it again."
            )
        sample = self._features.sample
        unknown = [name for name in self._columns if name not in arrays]
        if unknown:
            near = [name for name in arrays if name.startswith(f"{unknown[0]} (")]
            raise ValueError(
                f"columns= names {unknown[0]!r}, which is not an array with rows of the model; "
                f"these are {list(arrays)}." + (f" Did you mean {near[0]!r}?" if near else "")
            )
        for name, array in arrays.items():
            if len(array) != len(sample):
                raise ValueError(
                    f"like= has {len(sample)} rows and {name!r} of the model {len(array)}. Pass "
                    "the data frame that the model was built on, with the same rows in the same "
                    "order."
                )
        search = Derivation(self._features)
        derived = {
            name: search.array(name, array, self._columns.get(name))
            for name, array in arrays.items()
        }
        search.check_rows(derived)
        reader = _Reader(self._table, self._features, derived)
        reader.check()
        return DerivedBlocks(reader, self._division)


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of names, types, shapes and values."""
    found = hashlib.sha256()
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _features_of(like: Any) -> Features:
    if hasattr(like, "conditional_parameters") and hasattr(like, "response_term"):
        return BambiFeatures(like)
    if not isinstance(like, pd.DataFrame):
        raise TypeError(
            "like= is the pandas.DataFrame that the model was built on, or the bambi.Model, got "
            f"{type(like).__name__}."
        )
    if not len(like) or not like.columns.is_unique:
        fault = "two columns of the same name" if len(like) else "no rows"
        raise ValueError(
            f"like= has {fault}. Pass the data frame that the model was built on, with the columns "
            "of the table."
        )
    return ColumnFeatures(like)


class _Reader:
    """Reads the arrays of a model from a table.

    Parameters
    ----------
    table : Table
    features : Features
    arrays : dict of str to DerivedArray
    """

    def __init__(
        self, table: Table, features: Features, arrays: Mapping[str, DerivedArray]
    ) -> None:
        self.table, self.arrays = table, dict(arrays)
        self._features = features
        self._wanted = sorted(set().union(*(each.features for each in arrays.values())))
        of_features = {name for each in self._wanted for name in features.columns[each]}
        self._factors = [each for array in arrays.values() for each in array.factors]
        needed = of_features | {each.column for each in self._factors}
        sample = features.sample
        self._checked = [str(name) for name in sample.columns if name in needed]
        self._columns = self._checked
        self._only_levels = needed - of_features
        if any(isinstance(each.columns[0], Computed) for each in arrays.values()):
            self._only_levels = set()
            self._columns = [str(name) for name in sample.columns if name in table.types]
        elif not needed:  # all arrays are constant, and only the number of rows is read
            self._columns = list(table.types)[:1]
        self._categories = {
            name: sample[name].dtype
            for name in self._columns
            if isinstance(sample[name].dtype, pd.CategoricalDtype)
        }
        self._is_number = {
            name: is_numeric(sample[name]) for name in self._checked if name not in self._categories
        }
        self._levels = {
            name: pd.Index(pd.unique(sample[name]))
            for name, is_number in self._is_number.items()
            if not is_number
        }
        self._levels |= {
            name: pd.Index(self._categories[name].categories)
            for name in self._checked
            if name in self._categories
        }
        self._levels |= {each.column: each.levels for each in self._factors}
        self._converted = {
            name: dtype for name, dtype in self._categories.items() if name not in self._only_levels
        }
        self._integers = [name for name in self._checked if sample[name].dtype.kind in "iub"]

    def check(self) -> None:
        """Check the columns of the table: names, types, missing values, and levels."""
        table = self.table
        table.check_columns(self._checked)
        for name, is_number in self._is_number.items():
            dtype = table.dtypes[name]
            if is_number == (dtype is None):
                kinds = ("numbers", "text") if is_number else ("text", "numbers")
                raise ValueError(
                    f"Column {name!r} of {table.where} has the type {table.types[name]}, and the "
                    f"model was built on {kinds[0]}. Convert the column, in the table or in the "
                    "sample."
                )
            if name in self._integers and dtype is not None and dtype.kind == "f":
                raise ValueError(
                    f"Column {name!r} of {table.where} has the type {table.types[name]}, and the "
                    "model was built on integers. Convert the column to integers in the table, "
                    f"or build the model on sample.astype({{{name!r}: float}})."
                )
        counts = table.n_missing(self._checked)
        for name, count in counts.items():
            if count:
                raise table.missing_value(name, None, count)
        self._check_values([name for name in self._checked if name not in counts])

    def _check_values(self, uncounted: list[str]) -> None:
        """Read columns once, for levels that the sample does not have and for missing values."""
        known = {name: set(levels) for name, levels in self._levels.items()}
        read = list(dict.fromkeys([*known, *uncounted]))
        if not read:
            return
        for first, frame in self.table.frames(0, self.table.n_rows, read, self._levels):
            self._check_missing(first, frame)
            for name, levels in known.items():
                new = [each for each in pd.unique(frame[name]) if each not in levels]
                if new:
                    row = first + int(np.argmax((frame[name] == new[0]).to_numpy()))
                    raise self._new_level(name, new, row)

    def _new_level(self, name: str, new: list[Any], row: int) -> ValueError:
        values = [each.item() if isinstance(each, np.generic) else each for each in new[:_SHOWN]]
        shown = ", ".join(map(repr, values)) + (", ..." if len(new) > _SHOWN else "")
        return ValueError(
            f"Column {name!r} has {shown} {self.table.origin(row)}, which is none "
            f"of the {len(self._levels[name])} levels in the sample that the model was built "
            "on. Build the model on a sample with rows of every level, such as "
            f"table.groupby({name!r}).head(20), or drop these rows of the table."
        )

    def _check_missing(self, first: int, frame: pd.DataFrame) -> None:
        for name in self._checked:
            if name not in frame:
                continue
            missing = frame[name].isna().to_numpy()
            if missing.any():
                raise self.table.missing_value(name, first + int(missing.argmax()))

    def read(self, ranges: list[tuple[int, int]]) -> dict[str, np.ndarray]:
        """Read the rows of ranges.

        Raises
        ------
        ValueError
            For missing values, levels that the sample does not have, and terms that cannot be
            evaluated.
        """
        n_rows = sum(stop - start for start, stop in ranges)
        found = {
            name: np.empty((n_rows, *each.row_shape), each.dtype)
            for name, each in self.arrays.items()
        }
        position = 0
        for start, stop in ranges:
            for first, frame in self.table.frames(start, stop, self._columns, self._only_levels):
                self._check_missing(first, frame)
                frame = frame.astype(self._converted)
                rows = Rows(frame, self._features.evaluate(frame, self._wanted))
                for each in self._factors:
                    self._check_codes(each, rows, first)
                for name, array in self.arrays.items():
                    found[name][position : position + len(frame)] = array.values(rows)
                position += len(frame)
        return found

    def _check_codes(self, factor: Levels, rows: Rows, first: int) -> None:
        codes = rows.codes(factor.column, factor.levels)
        if codes.min(initial=0) < 0:
            row = int(codes.argmin())
            raise self._new_level(factor.column, [rows.frame[factor.column].iloc[row]], first + row)


class DerivedBlocks:
    """Row blocks of the arrays of a model, derived from the columns of a table.

    Parameters
    ----------
    reader : _Reader
    division : Division

    Attributes
    ----------
    total_size : int
        N, the number of rows of the table.
    block_size : int
    origins : dict of str to str
        How each array follows from the columns.
    """

    def __init__(self, reader: _Reader, division: Division) -> None:
        self._reader, self._division = reader, division
        self.total_size, self.block_size = division.total_size, division.block_size
        self.origins = {name: str(each) for name, each in reader.arrays.items()}

    def __len__(self) -> int:
        return len(self._division)

    def __iter__(self) -> Iterator[dict[str, DerivedRows]]:
        for ranges in self._division:
            block = _Block(self._reader, ranges)
            yield {name: DerivedRows(block, name) for name in self.origins}


class _Block:
    """Rows of a block, which are read once, when the first array is read."""

    def __init__(self, reader: _Reader, ranges: list[tuple[int, int]]) -> None:
        self.reader, self.ranges = reader, ranges
        self.n_rows = sum(stop - start for start, stop in ranges)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays by the names of the model."""
        return self.reader.read(self.ranges)


class DerivedRows:
    """Rows of one array in a block, which are read when they are needed.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    def __init__(self, block: _Block, name: str) -> None:
        self._block, self._name = block, name
        array = block.reader.arrays[name]
        self.shape, self.dtype = (block.n_rows, *array.row_shape), array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all rows."""
        return np.asarray(self._block.arrays[self._name], dtype)

    def pieces(self) -> Iterator[np.ndarray]:
        """Read the rows, in one piece."""
        yield self._block.arrays[self._name]

    def origin(self, row: int) -> str:
        """Describe the position of a row in the table."""
        for start, stop in self._block.ranges:
            if row < stop - start:
                return self._block.reader.table.origin(start + row)
            row -= stop - start
        raise IndexError(f"Row {row} does not exist: there are {len(self)} rows.")


def table_blocks(
    source: Any,
    *,
    like: Any,
    columns: Mapping[str, Any] | None = None,
    block_size: int | None = None,
    stretches: int = 1,
) -> TableBlocks:
    """Read the rows of a table for a model that was built on a sample of them, for ``batches=``.

    The arrays of the model that have a value for each row are found by the step method, and
    compared with the columns of the sample. An array follows from the table if each of its columns

    - is a numeric column, or a number times a numeric column plus a number: the mean and the
      standard deviation of the sample, for example;
    - has one value for each level of a column: codes, indicators, or covariates of groups;
    - is the same number in each row.

    With a Bambi model as ``like=``, the library formulae evaluates the terms of the formula, with
    the levels, means and knots of the sample.

    Parameters
    ----------
    source : path-like, sequence of path-like, pyarrow.dataset.Dataset or dask.dataframe.DataFrame
        Parquet files, one, several or a folder, as for `parquet_blocks`; or a Dask data frame, the
        partitions of which are computed one at a time.
    like : pandas.DataFrame or bambi.Model
        The rows that the model was built on, in their order, with the same column names as the
        table; or the Bambi model.
    columns : dict, optional
        Origin of arrays whose values match several columns or none. The keys are names as shown
        by ``step.rows``; a value is a column, a list with a column or number for each column of
        the array, or a function that takes a data frame and returns the rows of the array.
    block_size : int, optional
        Rows of a block, except for the last one; by default 100,000. Some two blocks are in memory
        at a time.
    stretches : int
        Number of stretches of the table that every block takes rows from; see `row_blocks`.

    Returns
    -------
    TableBlocks
        For ``batches=`` of a step method, without ``minibatch=``.

    Raises
    ------
    TypeError
        If ``source`` is a data frame in memory, or ``like`` no data frame and no Bambi model.
    ValueError
        If the table has no rows or ``block_size`` or ``stretches`` is not an integer from 1 to N.
        When the step is made: if an array of the model does not follow from the columns; or a
        column does not exist in the table, has another type, missing values, or a level that the
        sample does not have. Columns with levels are read once for this, and those of a Dask data
        frame. While sampling: for missing values that the statistics of the files do not count,
        such as NaN, and terms of Bambi that cannot be evaluated.
    ImportError
        If pyarrow is not installed: ``pip install 'pymc_geodesic[parquet]'``.

    See Also
    --------
    parquet_blocks : columns for the data containers of a model, by name.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pandas as pd, pymc as pm, pymc_geodesic as pg
    >>> rng = np.random.default_rng(1)
    >>> table = pd.DataFrame({"age": rng.normal(50, 10, 1000)})
    >>> table["city"] = rng.choice(["a", "b"], 1000)
    >>> table["income"] = table["age"] + rng.normal(size=1000)
    >>> sample = table.head(100)
    >>> with tempfile.TemporaryDirectory() as folder, pm.Model() as model:
    ...     table.to_parquet(f"{folder}/people.parquet")
    ...     level, slope = pm.Normal("level", 50, 10, shape=2), pm.Normal("slope")
    ...     city, _ = pd.factorize(sample["city"])
    ...     age = sample["age"].to_numpy() - sample["age"].mean()
    ...     pm.Normal("y", level[city] + slope * age, observed=sample["income"].to_numpy())
    ...     blocks = pg.datasets.table_blocks(folder, like=sample)
    ...     pg.SGGMC(batch_size=50, batches=blocks).rows
    y
    1,000 rows of y: y (observed) from 'income'; constant 1 from 'age' - ...
    """
    return TableBlocks(source, like, columns, block_size, stretches)
