"""Grids of tests: the cells that every run takes, and those that `make test-slow` adds.

CONTRIBUTING.md states which cells run by default: every law, formula, route and message has one,
every kernel a mutant, and the rest of a grid is slow.
"""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Return a cell of a grid that only `make test-slow` takes."""
    return pytest.param(*values, marks=pytest.mark.slow)


def cell(*values: Any) -> Any:
    """Return what `parametrize` takes for one cell, tuples among its values side by side."""
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return pytest.param(*flat)


def by_default(chosen: Collection[Any], of: Iterable[Any]) -> list[Any]:
    """Return the cells of a grid, slow but for those that are chosen, by themselves or by name.

    Raises
    ------
    ValueError
        If one that is chosen is not there.
    """
    grid = list(of)
    is_chosen = [each in chosen or str(each) in chosen for each in grid]
    if sum(is_chosen) != len(chosen):
        raise ValueError(f"not all of {chosen} are among {grid}")
    return [
        cell(each) if chosen else slow(*cell(each).values)
        for each, chosen in zip(grid, is_chosen, strict=True)
    ]


def cross(rows: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """Return the cells of two axes: by default all rows in one column, and all columns in one row.

    The first ones are meant. A row or column of several arguments is a tuple of them.
    """
    cells = [
        (cell(row, column), i == 0 or j == 0)
        for (i, row), (j, column) in product(enumerate(rows), enumerate(list(columns)))
    ]
    return [each if chosen else slow(*each.values) for each, chosen in cells]
