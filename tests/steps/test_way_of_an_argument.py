"""The way of ``batch_size`` from a constructor to compiled code: through each file once."""

import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic
from pymc_geodesic import SGGMC, SGLD

ROOT = str(Path(pymc_geodesic.__file__).parent)
BATCH = 1009  # no other number of this model


def files_that(construct) -> list[str]:
    """Files of the package of which a function is handed the number, in order."""
    found: list[str] = []

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(ROOT):
            return
        given = list(frame.f_locals.values())
        given += [each for held in given if type(held) is dict for each in held.values()]
        if any(type(each) in (int, np.int64) and each == BATCH for each in given):
            name = Path(file).relative_to(ROOT).as_posix()
            if found[-1:] != [name]:
                found.append(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        construct()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("step_class", "given"), [(SGGMC, {}), (SGLD, {"step_size": 0.01})], ids=["tuned", "told"]
)
def test_batch_size_goes_down_once(step_class, given):
    """It ends in the source of the rows; what is left of it is the length of arrays in graphs."""
    rows = np.random.default_rng(1).normal(size=3 * BATCH + 1)
    with pm.Model():
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=pm.Data("rows", rows))
        arguments = {"minibatch": "rows", "compile_kwargs": {"mode": "FAST_COMPILE"}} | given
        way = files_that(lambda: step_class(batch_size=BATCH, **arguments))
    assert len(way) == len(set(way)), f"it comes back: {way}"
    assert way[:5] == [
        "steps/base/signature.py",
        "arguments.py",
        "minibatches/from_arguments.py",
        "minibatches/shuffled_rows.py",
        "minibatches/order.py",
    ]
    assert set(way[5:]) <= {
        "densities/log_density.py",
        "minibatches/row_inputs.py",
        "densities/compilation.py",
    }
