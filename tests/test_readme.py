"""The code in README.md runs with few draws; links and tables agree with the package."""

import re
from functools import partial
from pathlib import Path

import pymc as pm
import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
FEW = {
    "draws": 20,
    "tune": 20,
    "chains": 1,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
}


def test_the_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pm, "sample", partial(pm.sample, **FEW))
    names = {"__name__": "readme"}
    for block in BLOCKS:
        exec(block, names)
        assert names["idata"].posterior.sizes["draw"] == FEW["draws"]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "benchmarks/README.md"])
def test_links_lead_to_files(page):
    path = README.parent / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
