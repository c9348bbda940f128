"""The code in README.md runs, with few draws, and its links and tables agree with the package."""

import re
from functools import partial
from pathlib import Path

import pymc as pm
import pytest
from pymc.step_methods.compound import BlockedStep

import pymc_geodesic as pg

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


def test_the_lead_example_is_on_the_front_page_of_the_documentation():
    page = (README.parent / "docs" / "index.md").read_text()
    (model,) = re.findall(r"^with pm.Model\(\).*?observed=y\)$", BLOCKS[0], re.DOTALL | re.M)
    assert model.removeprefix("with pm.Model() as model:") in page


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


def test_the_full_table_has_each_sampler_of_the_package():
    steps = {name for name in pg.__all__ if isinstance(getattr(pg, name), type)}
    steps = {name for name in steps if issubclass(getattr(pg, name), BlockedStep)}
    page = (README.parent / "docs" / "samplers.md").read_text()
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| {class}"))
    assert steps <= set(re.findall(r"pymc_geodesic\.(\w+)`", rows))


def test_the_short_table_has_two_samplers():
    table = README.read_text().split("## Which sampler")[1].split("\n\n")[1]
    assert re.findall(r"^\| .* \| `(\w+)`", table, re.M) == ["GMC", "SGGMC"]
