"""Imports run downward only: read from the sources, not from what happens to be loaded."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "pymc_geodesic"
ROOT = Path(__file__).parents[1] / PACKAGE

# What each layer may import from the package, besides itself; lower layers come first.
MAY_IMPORT = {
    "runtime": set(),
    "datasets": set(),
    "failure_modes": set(),
    "schedules": {"runtime"},
    "arguments": {"schedules"},
    "manifolds": {"runtime"},
    "ops": {"runtime"},
    "integrators": {"runtime", "manifolds"},
    "transforms": {"manifolds"},
    "sparse": {"ops"},
    "runs": {"failure_modes"},
    "distributions": {"runtime", "manifolds", "transforms", "ops"},
    "kernels": {"runtime", "manifolds", "integrators"},
    "models": {"runtime", "transforms", "sparse", "distributions", "kernels", "ops"},
    "minibatches": {"runtime", "failure_modes", "arguments", "sparse"},
    "densities": {"runtime", "manifolds", "ops", "transforms", "sparse", "minibatches"},
}
MAY_IMPORT["densities"] |= {"failure_modes"}
NUMERICS = {"runtime", "schedules", "arguments", "manifolds", "integrators", "kernels"}
MAY_IMPORT["gradients"] = (NUMERICS - {"arguments"}) | {"ops", "sparse", "minibatches", "densities"}
MAY_IMPORT["gradients"] |= {"failure_modes"}
MAY_IMPORT["counts"] = MAY_IMPORT["gradients"] | {"gradients", "transforms"}
MAY_IMPORT["models"] |= {"arguments", "schedules"}
MAY_IMPORT["__main__"] = {"", "runs"}  # what users see, and how far a run is
MAY_IMPORT["monitoring"] = {"runtime", "failure_modes", "manifolds", "gradients"}
MAY_IMPORT["adaptation"] = NUMERICS | {"failure_modes", "minibatches", "gradients", "monitoring"}
MAY_IMPORT["adaptation"] |= {"counts"}
MAY_IMPORT["samplers"] = NUMERICS | {"densities", "gradients", "counts", "monitoring", "adaptation"}
MAY_IMPORT["steps"] = MAY_IMPORT["counts"] | {"counts", "arguments"}
MAY_IMPORT["steps"] |= {"monitoring", "adaptation", "samplers"}
MAY_IMPORT["diagnostics"] = {"steps", "gradients", "distributions", "kernels", "arguments"}
MAY_IMPORT["diagnostics"] |= {"manifolds", "runtime", "failure_modes", "samplers"}
MAY_IMPORT["distributed"] = {
    "steps",
    "gradients",
    "densities",
    "distributions",
    "models",
    "manifolds",
}
MAY_IMPORT["distributed"] |= {"arguments", "runs", "sparse", "adaptation"}
MAY_IMPORT["distributed"] |= {"runtime", "kernels", "counts", "samplers"}

# Layers of plain numerics, without PyMC or PyTensor.
WITHOUT_PYMC = NUMERICS | {"diagnostics", "datasets", "failure_modes"}
WITHOUT_PYMC |= {"monitoring", "adaptation", "samplers"}
# Layers that define distributions, transforms and Ops.
EXTENDS_PYMC = {"transforms", "distributions", "sparse", "ops"}
# The public face of both, which every other layer may use.
PUBLIC = {"pymc", "pytensor", "pytensor.graph", "pytensor.tensor"}
# Whoever writes a distribution, a transform or an Op needs the base classes.
EXTENSION = (
    "pymc.distributions",
    "pymc.logprob",
    "pymc.model",
    "pymc.pytensorf",
    "pytensor.compile",
    "pytensor.gradient",
    "pytensor.graph",
    "pytensor.link.jax.dispatch",
    "pytensor.raise_op",
    "pytensor.scalar",
    "pytensor.tensor",
)
# The only places that may reach further inside, so that a new PyMC version changes only them.
PRIVATE = (
    "pymc_geodesic.minibatches",
    "pymc_geodesic.densities",
    "pymc_geodesic.gradients",
    "pymc_geodesic.counts",
    "pymc_geodesic.steps.pymc_parts",
    "pymc_geodesic.runs.pymc_parts",
    "pymc_geodesic.distributed.pymc_parts",
    "pymc_geodesic.ops.numba_backend",
)


def module_name(path: Path) -> str:
    parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield each imported module and, for ``from a import b``, the module a.b that b might be.

    Imports within functions count: to defer one hides a circle and does not remove it.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            for alias in node.names:
                yield node.module, f"{node.module}.{alias.name}"


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def inside(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def violations(module: str, source: str) -> list[str]:
    found = []
    own = layer(module)
    for name, member in imports(source):
        root = name.split(".")[0]
        if root == PACKAGE:
            target = layer(member) if name == PACKAGE else layer(name)
            if own and target != own and target not in MAY_IMPORT[own]:
                found.append(f"{module} imports {name}: {own} may not use {target}")
        elif root in ("pymc", "pytensor"):
            if own in WITHOUT_PYMC:
                found.append(f"{module} imports {name}: {own} knows neither PyMC nor PyTensor")
            elif inside(module, PRIVATE) or name in PUBLIC:
                continue
            elif not (own in EXTENDS_PYMC and inside(name, EXTENSION)):
                found.append(f"{module} imports {name}: private imports belong in {PRIVATE}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downward(module):
    assert layer(module) in {"", *MAY_IMPORT}, f"{module}: name its layer in MAY_IMPORT"
    assert violations(module, MODULES[module].read_text()) == []


def circle(sources: dict[str, str]) -> list[str]:
    """Modules of one circle of imports, or none."""
    graph = {
        module: {
            member if member in sources else name
            for name, member in imports(source)
            if name in sources
        }
        for module, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_in_a_circle():
    assert circle({module: path.read_text() for module, path in MODULES.items()}) == []


@pytest.mark.parametrize("indent", ["", "def f():\n    ", "if TYPE_CHECKING:\n    "])
def test_a_circle_is_found(indent):
    sources = {
        "pymc_geodesic": "",
        "pymc_geodesic.a": "from pymc_geodesic.b import name",
        "pymc_geodesic.b": f"{indent}from pymc_geodesic import a",
    }
    assert set(circle(sources)) == {"pymc_geodesic.a", "pymc_geodesic.b"}
    assert circle(sources | {"pymc_geodesic.b": ""}) == []


def test_layers_form_no_circle():
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pymc_geodesic.manifolds.sphere", "from pymc_geodesic.kernels.gmc import gmc"),
        ("pymc_geodesic.manifolds.sphere", "from pymc_geodesic import kernels"),
        ("pymc_geodesic.manifolds.sphere", "def f():\n    import pymc_geodesic.steps"),
        ("pymc_geodesic.integrators", "import pymc_geodesic.kernels"),
        ("pymc_geodesic.kernels.gmc", "import pymc as pm"),
        ("pymc_geodesic.kernels.gmc", "from pytensor import tensor"),
        ("pymc_geodesic.samplers.langevin", "import pymc as pm"),
        ("pymc_geodesic.adaptation.whitened", "from pymc_geodesic.samplers.hmc import HMCSampler"),
        ("pymc_geodesic.monitoring.acceptance", "from pymc_geodesic.adaptation import whitened"),
        (
            "pymc_geodesic.densities.log_density",
            "from pymc_geodesic.steps.step import Step",
        ),
        ("pymc_geodesic.steps.sggmc", "from pymc.step_methods.arraystep import BlockedStep"),
        ("pymc_geodesic.distributions.vmf", "from pymc.step_methods import NUTS"),
        ("pymc_geodesic.ops.sparse_dot", "from pymc_geodesic.sparse.data import SparseData"),
        ("pymc_geodesic.ops.bessel_ops", "from pytensor.link.numba.dispatch import basic"),
        ("pymc_geodesic.models.sam", "from pymc_geodesic.steps import SGGMC"),
        ("pymc_geodesic.datasets.corpora", "import pymc_geodesic.models"),
    ],
)
def test_a_wrong_import_is_found(module, source):
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pymc_geodesic", "from pymc_geodesic.steps import SGGMC"),
        ("pymc_geodesic.kernels.gmc", "from pymc_geodesic.manifolds.product import geodesic"),
        (
            "pymc_geodesic.steps.pymc_parts",
            "from pymc.step_methods.arraystep import BlockedStep",
        ),
        ("pymc_geodesic.distributions.vmf", "from pymc.distributions.continuous import Flat"),
        ("pymc_geodesic.models.sam", "import pymc as pm\nimport pytensor.tensor as pt"),
        ("pymc_geodesic.steps.sggmc", "from pymc_geodesic.gradients import density"),
    ],
)
def test_a_right_import_passes(module, source):
    assert violations(module, source) == []
