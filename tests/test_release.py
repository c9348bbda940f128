"""Files of a release agree with `pyproject.toml` and with each other."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
RECIPE = yaml.safe_load((ROOT / "conda-recipe" / "recipe.yaml").read_text(encoding="utf-8"))
CONDA_NAMES = {"matplotlib": "matplotlib-base", "h5netcdf[h5py]": "h5netcdf"}
"""Requirements whose conda package has another name."""


def conda_specification(requirement: str) -> str:
    """Requirement of pip in the form of conda."""
    parsed = Requirement(requirement)
    bounds = sorted(str(parsed.specifier).split(","), key=lambda bound: ">" not in bound)
    name = re.split(r"[<>=!]", requirement)[0]
    return f"{CONDA_NAMES.get(name, name)} {','.join(bounds)}"


def test_version_of_changelog_citation_and_recipe():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.search(r"^## ([\d.]+) \(", changelog, re.MULTILINE)
    assert version is not None
    assert CITATION["version"] == RECIPE["context"]["version"] == version[1]


def test_addresses():
    urls = PROJECT["project"]["urls"]
    assert CITATION["repository-code"] == RECIPE["about"]["repository"] == urls["Source"]
    assert CITATION["url"] == RECIPE["about"]["documentation"] == urls["Documentation"]
    assert RECIPE["about"]["homepage"] == urls["Homepage"]
    readme = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    paths = [urls["Source"].removeprefix("https://github.com/")] * 2
    found = [
        re.search(r"com/([^/]+/[^/]+)/", each["replacement"])[1] for each in readme["substitutions"]
    ]
    assert found == paths


def test_requirements_of_the_conda_package():
    requirements = RECIPE["requirements"]
    expected = [conda_specification(each) for each in PROJECT["project"]["dependencies"]]
    assert requirements["run"][1:] == [*expected, "h5py"]
    python = PROJECT["project"]["requires-python"]
    minimum = RECIPE["context"]["python_min"]
    assert requirements["run"][0].replace("${{ python_min }}", minimum) == f"python {python}"
    backend = [conda_specification(each) for each in PROJECT["build-system"]["requires"]]
    assert requirements["host"][2:] == backend


def test_links_of_the_readme_on_pypi():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    assert all(each.startswith(("https://", "#")) for each in targets)
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert all(each.startswith("https://raw.githubusercontent.com/") for each in images)
