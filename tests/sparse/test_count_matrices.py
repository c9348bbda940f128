"""Coordinates of count matrices."""

import pandas as pd

from pymc_geodesic.sparse.count_matrices import axis_coords


def test_names_of_several_parts_are_no_coordinates():
    index = pd.MultiIndex.from_product([["may", "june"], [1, 2]])
    counts = pd.DataFrame(1, index=index, columns=["sun", "rain", "snow"])
    coords = axis_coords(counts, (4, 3), day=("days", None), sky=("skies", None))
    assert list(coords["day"]) == [0, 1, 2, 3]
    assert coords["sky"] == ["sun", "rain", "snow"]
