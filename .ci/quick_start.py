"""Run the programs of the README with few draws, on the package as it was installed.

The argument is the path of the README. Everything but the number of draws is left at its default,
the progress bar included, so that the run shows which dependencies are not declared.
"""

import re
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pymc as pm

import pymc_geodesic


def main(readme: Path) -> None:
    """Run the blocks one after the other."""
    home = Path(pymc_geodesic.__file__).parent
    assert "site-packages" in home.parts, f"not the installed package: {home}"
    assert (home / "py.typed").is_file(), "the wheel lacks py.typed"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks, f"no program in {readme}"
    few = {"draws": 50, "tune": 50, "chains": 2, "cores": 1}
    pm.sample = partial(pm.sample, **few)
    names: dict = {"__name__": "quick_start"}
    exec("\n".join(blocks), names)
    posterior = names["idata"].posterior
    assert dict(posterior.sizes)["draw"] == few["draws"], posterior.sizes
    print(
        f"pymc_geodesic {version('pymc_geodesic')} with PyMC {pm.__version__}: the quick start runs"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
