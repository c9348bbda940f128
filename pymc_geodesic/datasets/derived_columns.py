"""Derivation of the arrays of a model from the columns of the data frame that it was built on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

_ROUNDING = 100
"""Largest difference, in units of rounding of the largest number, of values that are equal."""

_ROWS_OF_LEVEL = 5
"""Rows of each level in the sample from which values of an array are attributed to levels."""


class Features(Protocol):
    """Numeric values that are computed from rows of a table.

    Attributes
    ----------
    sample : pandas.DataFrame
        Rows that the model was built on.
    columns : dict of str to set of str
        Columns of the table that each feature is computed from.
    factors : list of str
        Columns of the table whose levels may have a value each.
    """

    sample: pd.DataFrame
    columns: Mapping[str, Collection[str]]
    factors: Sequence[str]

    def evaluate(self, frame: pd.DataFrame, wanted: Collection[str]) -> dict[str, np.ndarray]:
        """Compute features of rows."""


class ColumnFeatures:
    """Numeric columns as features, and as factors those of text, categories or integers.

    Parameters
    ----------
    sample : pandas.DataFrame
    """

    def __init__(self, sample: pd.DataFrame) -> None:
        self.sample = sample
        names = [name for name in sample.columns if isinstance(name, str)]
        numeric = [name for name in names if is_numeric(sample[name])]
        self.columns: Mapping[str, Collection[str]] = {name: {name} for name in numeric}
        self.factors: Sequence[str] = [
            name for name in names if name not in numeric or sample[name].dtype.kind in "iu"
        ]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"sample": self.sample.head(0)}

    def evaluate(self, frame: pd.DataFrame, wanted: Collection[str]) -> dict[str, np.ndarray]:
        """Return columns."""
        return {name: frame[name].to_numpy() for name in wanted}


def is_numeric(column: pd.Series) -> bool:
    """Whether values are numbers or truth values, other than categories."""
    return bool(pd.api.types.is_numeric_dtype(column))


@dataclass(frozen=True)
class Scaled:
    """A feature times a number, plus a number."""

    feature: str
    shift: float = 0.0
    scale: float = 1.0

    def __str__(self) -> str:
        text = repr(self.feature)
        if self.scale != 1.0:
            text = f"{self.scale:.4g} * {text}"
        if self.shift:
            text += f" {'-' if self.shift < 0 else '+'} {abs(self.shift):.4g}"
        return text

    def values(self, rows: Rows) -> np.ndarray:
        """Values of the rows of a table."""
        values = rows.features[self.feature]
        if self.scale == 1.0 and not self.shift:
            return values
        return self.shift + self.scale * values


@dataclass(frozen=True)
class Levels:
    """A number for each level of a factor.

    Attributes
    ----------
    column : str
    levels : pandas.Index
    table : ndarray, shape (levels,)
    """

    column: str
    levels: pd.Index
    table: np.ndarray

    def __str__(self) -> str:
        return f"the {len(self.levels)} levels of {self.column!r}"

    def values(self, rows: Rows) -> np.ndarray:
        """Values of the rows of a table."""
        return self.table[rows.codes(self.column, self.levels)]


@dataclass(frozen=True)
class Fixed:
    """The same number in each row."""

    number: float

    def __str__(self) -> str:
        return f"{self.number:.4g}"

    def values(self, rows: Rows) -> np.ndarray:
        """Values of the rows of a table."""
        return np.full(len(rows.frame), self.number)


type Derived = Scaled | Levels | Fixed
"""Origin of one column of an array."""


@dataclass(frozen=True)
class Computed:
    """An array that a function computes from the data frame of some rows."""

    function: Callable[[pd.DataFrame], Any]

    def __str__(self) -> str:
        return f"{getattr(self.function, '__name__', repr(self.function))}(rows)"

    def values(self, rows: Rows) -> np.ndarray:
        """Values of the rows of a table."""
        return np.asarray(self.function(rows.frame))


class Rows:
    """Rows of a table, their features, and the codes of their levels.

    Parameters
    ----------
    frame : pandas.DataFrame
    features : dict of str to ndarray
    """

    def __init__(self, frame: pd.DataFrame, features: Mapping[str, np.ndarray]) -> None:
        self.frame, self.features = frame, features
        self._codes: dict[tuple[str, int], np.ndarray] = {}

    def codes(self, column: str, levels: pd.Index) -> np.ndarray:
        """Position of the value of each row among levels; -1 for others."""
        key = (column, id(levels))
        if key not in self._codes:
            self._codes[key] = levels.get_indexer(self.frame[column])
        return self._codes[key]


@dataclass(frozen=True)
class DerivedArray:
    """An array of the model that follows from a table.

    Attributes
    ----------
    columns : tuple
        Origin of each column, or one `Computed`.
    row_shape : tuple of int
    dtype : numpy.dtype
    """

    columns: tuple[Derived, ...] | tuple[Computed]
    row_shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        few = [str(each) for each in self.columns[:4]]
        more = len(self.columns) - len(few)
        return ", ".join(few) + (f" and {more} more" if more else "")

    @property
    def features(self) -> set[str]:
        """Features that are needed."""
        return {each.feature for each in self.columns if isinstance(each, Scaled)}

    @property
    def factors(self) -> list[Levels]:
        """Levels that are needed."""
        return [each for each in self.columns if isinstance(each, Levels)]

    def values(self, rows: Rows) -> np.ndarray:
        """Values of the rows of a table.

        Raises
        ------
        ValueError
            If integers of the model have a fraction in the table, or a function returns another
            shape.
        """
        parts = [each.values(rows) for each in self.columns]
        shape = (len(rows.frame), *self.row_shape)
        found = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
        if isinstance(self.columns[0], Computed) and found.shape != shape:
            raise ValueError(
                f"The function {self} returns the shape {found.shape}, and the model needs "
                f"{shape}. Return a row for each row of the data frame."
            )
        found = found.reshape(shape)
        if self.dtype.kind in "iub" and found.dtype.kind == "f":
            found = np.rint(exact := found)
            if not np.allclose(found, exact, rtol=0, atol=1e-6):
                raise ValueError(
                    f"{self} has fractions, and the model {self.dtype} values. Convert the column "
                    "to integers in the table, or build the model on floats."
                )
        return found.astype(self.dtype, copy=False)


class Derivation:
    """Search for the origin of arrays in the columns of a sample.

    Parameters
    ----------
    features : Features

    Raises
    ------
    ValueError
        By `array`, if an array does not follow from columns, or in two ways.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from pymc_geodesic.datasets.derived_columns import ColumnFeatures, Derivation
    >>> sample = pd.DataFrame({"age": [30.0, 40.0, 65.0, 20.0], "sex": ["f", "m", "m", "f"]})
    >>> search = Derivation(ColumnFeatures(sample))
    >>> age = sample["age"].to_numpy()
    >>> print(search.array("x", (age - age.mean()) / 10))
    0.1 * 'age' - 3.875
    >>> print(search.array("group", np.array([0, 1, 1, 0])))
    the 2 levels of 'sex'
    """

    def __init__(self, features: Features) -> None:
        self._all = features
        frame = features.sample
        self._rows = Rows(frame, features.evaluate(frame, list(features.columns)))

    def array(self, name: str, array: np.ndarray, given: Any = None) -> DerivedArray:
        """Find the origin of each column of an array.

        Parameters
        ----------
        name : str
        array : ndarray, shape (n, ...)
        given : str, float, sequence of them, or callable, optional
            Column or number for each column of the array, or a function of the data frame.
        """
        row_shape = array.shape[1:]
        if callable(given):
            found = DerivedArray((Computed(given),), row_shape, array.dtype)
            self._check_function(name, array, found)
            return found
        several = array.reshape(len(array), -1)
        chosen: Sequence[Any] = [None] * several.shape[1]
        if given is not None:
            chosen = [given] if isinstance(given, str | float | int) else list(given)
            if len(chosen) != several.shape[1]:
                raise ValueError(
                    f"columns= has {len(chosen)} entries for {name!r}, which has "
                    f"{several.shape[1]} columns: {chosen}. Name a column of the table for each, "
                    "or pass a function of the data frame."
                )
        parts = []
        for j, column in enumerate(chosen):
            where = repr(name) if len(chosen) == 1 else f"column {j} of {name!r}"
            parts.append(self._column(name, where, several[:, j], column))
        return DerivedArray(tuple(parts), row_shape, array.dtype)

    def _check_function(self, name: str, array: np.ndarray, found: DerivedArray) -> None:
        values = found.values(self._rows)
        if not _are_equal(values, array):
            row = int(np.argmax(np.abs(values - array).reshape(len(array), -1).max(axis=1)))
            raise ValueError(
                f"The function of columns= for {name!r} returns {values[row]} for row {row} of "
                f"like=, and the model has {array[row]}. Return the values that the model was "
                "built with."
            )

    def check_rows(self, arrays: Mapping[str, DerivedArray]) -> None:
        """Check that the values of a row do not depend on other rows.

        Raises
        ------
        ValueError
            For a function, or a term of a formula, that subtracts a mean of its rows.
        """
        frame = self._all.sample.iloc[::2]
        wanted = set().union(*(each.features for each in arrays.values()))
        part = Rows(frame, self._all.evaluate(frame, wanted))
        for name, array in arrays.items():
            if not _are_equal(array.values(part), array.values(self._rows)[::2]):
                raise ValueError(
                    f"{name!r}, from {array}, depends on other rows: every second row of like= has "
                    "other values alone than among all. Use the mean or the other numbers of the "
                    "sample, sample['x'].mean() in a function and center(x) or scale(x) in a "
                    "formula, instead of x.mean()."
                )

    def _column(self, name: str, where: str, values: np.ndarray, given: Any) -> Derived:
        if isinstance(given, float | int):
            if not _are_equal(values, np.full(len(values), given)):
                raise ValueError(
                    f"columns= has {given} for {where}, which varies from {values.min()} to "
                    f"{values.max()}. Name a column of the table."
                )
            return Fixed(float(given))
        if given is not None:
            return self._given(where, values, given)
        own = [name] if name in self._all.columns else []
        found = self._scaled(values, own) or self._scaled(values, self._all.columns)
        if values.min() == values.max():
            if found and found[0].feature == name:
                return found[0]
            sample = self._all.sample
            same = [each for each in sample.columns if sample[each].nunique(dropna=False) == 1]
            if same:
                raise ValueError(
                    f"{where} is {values[0]} in each row, and column {same[0]!r} of like= has one "
                    f"value too. Set columns={{{name!r}: {values[0]}}} for a constant, "
                    f"columns={{{name!r}: {same[0]!r}}} for the column, or build the model on a "
                    "sample in which it varies."
                )
            return Fixed(float(values[0]))
        candidates: Sequence[Derived] = found
        if not found:
            own = [name] if name in self._all.factors else []
            candidates = self._levels(values, own) or self._levels(values, self._all.factors)
        if not candidates:
            raise ValueError(self._not_found(name, where))
        if len(candidates) > 1:
            listed = " and as ".join(map(str, candidates))
            column = getattr(candidates[0], "feature", getattr(candidates[0], "column", ""))
            raise ValueError(
                f"{where} follows in several ways from the rows of like=: as {listed}. Choose one, "
                f"columns={{{name!r}: {column!r}}} for example"
                + (", with one entry for each column." if where != repr(name) else ".")
            )
        return candidates[0]

    def _not_found(self, name: str, where: str) -> str:
        remedy = f"set columns={{{name!r}: function}}, which computes it from a data frame of rows"
        if isinstance(self._all, ColumnFeatures):
            same = "the rows that the model was built on, in their order"
            remedy += "; or pass the bambi.Model as like= if Bambi has built the model"
        else:
            same = "the bambi.Model that has built this model"
        return (
            f"{where} does not follow from {list(self._all.columns)} and the levels of "
            f"{list(self._all.factors)}: it is neither one of these, shifted or scaled, nor has it "
            f"one value for each level. Check that like= is {same}; otherwise {remedy}."
        )

    def _given(self, where: str, values: np.ndarray, column: str) -> Derived:
        known = {*self._all.columns, *self._all.sample.columns}
        if column not in known:
            raise ValueError(
                f"columns= names {column!r} for {where}, and like= has no such column; its columns "
                f"are {sorted(map(str, known))}."
            )
        found: Sequence[Derived] = self._scaled(values, {column} & set(self._all.columns))
        is_factor = column in self._all.sample and self._all.sample[column].dtype.kind != "f"
        if not found and is_factor:
            found = self._levels(values, [column], every=True)
        if not found:
            raise ValueError(
                f"columns= names {column!r} for {where}, which is not that column of like=, "
                "shifted or scaled, and does not have one value for each of its levels. Pass the "
                "rows of the model in their order as like=, or a function of the data frame in "
                "columns=."
            )
        return found[0]

    def _scaled(self, values: np.ndarray, names: Collection[str]) -> list[Scaled]:
        """Features that are equal to values; otherwise those that are shifted, or also scaled."""
        if values.dtype.kind not in "biuf":
            return []
        features = {name: self._rows.features[name] for name in names}
        features = {name: each for name, each in features.items() if each.dtype.kind in "biuf"}
        equal = [Scaled(name) for name, each in features.items() if _are_equal(each, values)]
        if equal or values.min() == values.max():
            return equal
        related = [
            Scaled(name, *line)
            for name, each in features.items()
            if (line := _line(each, values)) is not None
        ]
        return [each for each in related if each.scale == 1.0] or related

    def _levels(
        self, values: np.ndarray, names: Sequence[str], *, every: bool = False
    ) -> list[Levels]:
        """Factors of which each level has one value, those with the fewest levels.

        Levels of few rows, and integers as levels, are taken where these values are codes, one for
        each level, or with ``every``.
        """
        found = []
        for name in names:
            codes, levels = factorize(self._all.sample[name])
            if codes.min() < 0 or (not every and len(levels) > len(codes) / 2):
                continue
            counts = np.bincount(codes, minlength=len(levels))
            table = np.zeros(len(levels), values.dtype)
            table[codes] = values
            if not np.array_equal(table[codes], values):
                continue
            are_codes = values.dtype.kind in "iu" and len(set(table[counts > 0])) == sum(counts > 0)
            if counts.min() == 0:  # of categories without rows
                if not are_codes or not np.array_equal(codes, values):
                    levels, table = levels[counts > 0], table[counts > 0]
                else:
                    table = np.arange(len(levels), dtype=values.dtype)
            is_clear = not is_numeric(self._all.sample[name]) and (
                counts[counts > 0].min() >= _ROWS_OF_LEVEL
            )
            if every or are_codes or is_clear:
                found.append(Levels(name, levels, table))
        fewest = min((len(each.levels) for each in found), default=0)
        return [each for each in found if len(each.levels) == fewest]


def factorize(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    """Codes and levels of a column: its categories, or its values in the order of the rows."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, dtype=int), pd.Index(column.cat.categories)
    codes, levels = pd.factorize(column)
    return codes, pd.Index(levels)


def _tolerance(*arrays: np.ndarray) -> float:
    types = [array.dtype for array in arrays if array.dtype.kind == "f"]
    precision = max((float(np.finfo(dtype).eps) for dtype in types), default=0.0)
    return _ROUNDING * precision


def _are_equal(first: np.ndarray, second: np.ndarray) -> bool:
    size = max(float(np.abs(second).max(initial=0)), 0.0)
    difference = np.abs(first.astype(float) - second.astype(float)).max(initial=0)
    return bool(difference <= _tolerance(first, second) * size)


def _line(feature: np.ndarray, values: np.ndarray) -> tuple[float, float] | None:
    """Shift and scale with which a feature has values, if there are."""
    feature, tolerance = feature.astype(float), _tolerance(feature, values, np.empty(0, float))
    low, high = int(feature.argmin()), int(feature.argmax())
    if not feature[low] < feature[high]:
        return None
    scale = (float(values[high]) - float(values[low])) / (feature[high] - feature[low])
    size = abs(scale) * np.abs(feature).max() + np.abs(values).max()
    if abs(scale - 1.0) <= tolerance * size / (feature[high] - feature[low]):
        scale = 1.0
    shift = float(values[low]) - scale * feature[low]
    if np.abs(shift) <= tolerance * size:
        shift = 0.0
    is_line = np.abs(shift + scale * feature - values).max() <= tolerance * size
    return (float(shift), float(scale)) if scale and is_line else None
