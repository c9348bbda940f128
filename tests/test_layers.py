"""Modules that may import private names of PyMC and PyTensor; import-linter checks the layers."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "pymc_geodesic"
ROOT = Path(__file__).parents[1] / PACKAGE

# The public interface, which every module may use.
PUBLIC = {"pymc", "pytensor", "pytensor.graph", "pytensor.tensor"}
# Packages that define distributions, transforms and Ops, and the base classes for these.
EXTENDS_PYMC = ("transforms", "distributions", "sparse", "ops")
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
# The only modules that may import private names, so that a new PyMC version affects only them.
PRIVATE = (
    "pymc_geodesic.minibatches",
    "pymc_geodesic.densities",
    "pymc_geodesic.gradients",
    "pymc_geodesic.counts",
    "pymc_geodesic.steps.pymc_interface",
    "pymc_geodesic.runs.pymc_backend",
    "pymc_geodesic.ops.numba_backend",
)


def module_name(path: Path) -> str:
    parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(source: str) -> Iterator[str]:
    """Yield each imported module, those within functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def inside(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def violations(module: str, source: str) -> list[str]:
    if inside(module, PRIVATE):
        return []
    extends = inside(module, tuple(f"{PACKAGE}.{name}" for name in EXTENDS_PYMC))
    return [
        name
        for name in imports(source)
        if name.split(".")[0] in ("pymc", "pytensor")
        and name not in PUBLIC
        and not (extends and inside(name, EXTENSION))
    ]


def test_private_imports_are_in_named_modules():
    found = {module: violations(module, path.read_text()) for module, path in MODULES.items()}
    assert {module: names for module, names in found.items() if names} == {}
