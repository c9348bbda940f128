"""The compatibility table is complete, and its entries are correct."""

import re
from importlib.util import find_spec
from itertools import product

import pytest

from benchmarks.compatibility import COLUMNS, NOT_APPLICABLE, NOT_RUN, PAGE, WORKS, measure, table
from benchmarks.every_distribution import ROWS
from tests.processes import in_its_own_process

LIBRARIES = {"NumPyro": "numpyro", "BlackJAX": "blackjax", "nutpie": "nutpie", "JAX": "jax"}


def entries():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    header, _, *rows = [[each.strip() for each in line.strip("|").split("|")] for line in lines]
    return {
        (row[0].strip("`"), column): entry
        for row in rows
        for column, entry in zip(header[1:], row[1:], strict=True)
    }


def test_the_page_has_all_rows_and_columns():
    assert set(entries()) == set(product(ROWS, COLUMNS))


def test_failures_have_a_reason():
    cells = {"VonMisesFisher": {"a": WORKS, "b": "ValueError: it fails"}}
    assert table(cells, ["a", "b"])[2:] == [
        "| VonMisesFisher | yes | no (1) |", "", "1. `ValueError: it fails`",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("row", "column"), list(product(ROWS, COLUMNS)))
def test_entries(row, column):
    for word, library in LIBRARIES.items():
        if word in column and find_spec(library) is None:
            pytest.skip(f"needs {library}")
    found = in_its_own_process(measure, row, column)
    shown = entries()[row, column]
    if shown == NOT_RUN:
        assert found in (WORKS, NOT_APPLICABLE)
    elif re.fullmatch(r"no \(\d+\)", shown):
        assert found not in (WORKS, NOT_APPLICABLE), "it works: run benchmarks.compatibility"
    else:
        assert found == shown
