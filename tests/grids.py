"""Grids of tests: cells that run by default, and cells marked slow.

CONTRIBUTING.md states which cells run by default.
"""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Return a cell that only `make test-slow` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def cell(*values: Any) -> Any:
    """Return a `pytest.param` with all values, tuples flattened."""
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return pytest.param(*flat)


def by_default(chosen: Collection[Any], of: Iterable[Any]) -> list[Any]:
    """Mark all cells as slow except the chosen ones, given as values or as their `str`.

    Raises
    ------
    ValueError
        If a chosen cell is not in the grid.
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
    """Return the cells of two axes; the first column and the first row run, others are slow.

    A row or column of several arguments is a tuple of them.
    """
    cells = [
        (cell(row, column), i == 0 or j == 0)
        for (i, row), (j, column) in product(enumerate(rows), enumerate(list(columns)))
    ]
    return [each if chosen else slow(*each.values) for each, chosen in cells]
