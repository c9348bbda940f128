"""The programs in the guide to sparse and streamed data run, with few draws."""

import re
import sys
from functools import partial
from pathlib import Path

import pymc as pm
import pytensor
import pytest

from tests import data_loader
from tests.grids import slow

PAGE = Path(__file__).parents[1] / "docs" / "sparse_and_streamed_data.md"
PROGRAMS = re.findall(r"^```python\n(import .*?|from .*?)```", PAGE.read_text(), re.DOTALL | re.M)
FILES = [program for program in PROGRAMS if "pm.sample" not in program]
PROGRAMS = [program for program in PROGRAMS if program not in FILES]
FEW = {
    "draws": 10,
    "tune": 10,
    "chains": 1,
    "random_seed": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
}


def test_there_are_programs():
    assert len(PROGRAMS) == 6
    assert len(FILES) == 1


@pytest.mark.parametrize(
    "program",
    [slow(PROGRAMS[0]), *PROGRAMS[1:]],
    ids=["sparse", "disk", "sparse on disk", "parquet", "loader", "table"],
)
def test_program(program, tmp_path, monkeypatch):
    if "parquet" in program or '"people"' in program:
        pytest.importorskip("pyarrow")
    if "pymc_extras" in program:
        monkeypatch.setitem(sys.modules, data_loader.NAME, data_loader.load_data_loader())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pm, "sample", partial(pm.sample, **FEW))
    names = {"__name__": "program"}
    if '"people"' in program:
        exec(FILES[0], {"__name__": "program"})
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        exec(program, names)
    assert names["idata"].posterior["w"].sizes["draw"] == FEW["draws"]
