"""Compatibility table of distributions with samplers and model transformations.

    python -m benchmarks.compatibility [--rows NAME ...] [--columns NAME ...] [--results FILE]

Every cell builds a model of `every_distribution`, runs one sampler or transformation for a few
draws, and checks that the results are finite, or equal to those of another computation. The table
is written to ``docs/compatibility.md``, with the reason for each failure. Cells in the results file
are not measured again.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
from scipy.special import logsumexp

from benchmarks.every_distribution import (
    CASES,
    N_ROWS,
    ROWS,
    data,
    mixture_of,
    model_of,
)

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
SEED = 1
INTERPRETED = {"mode": "FAST_COMPILE"}
SHORT = {"max_treedepth": 1}
"""Without compilation, a gradient of `MatrixBingham` takes a second."""
WORKS, NOT_APPLICABLE, NOT_RUN = "yes", "–", "not run"


class NotApplicableError(Exception):
    """The combination of a row and a column does not apply."""


class NotInstalledError(Exception):
    """The library of a column is missing."""


def require_finite(dataset: Any) -> None:
    """Raise if a variable of a data set has a value that is not finite."""
    for name, values in dataset.data_vars.items():
        if not np.all(np.isfinite(values)):
            raise ValueError(f"draws of {name} are not finite")


def log_density(model: pm.Model, point: dict[str, Any] | None = None) -> float:
    """Return the log-density at a point, by default the initial point."""
    compiled = model.compile_logp(**INTERPRETED)
    value = float(compiled(model.initial_point() if point is None else point))
    if not np.isfinite(value):
        raise ValueError(f"the log-density is {value}")
    return value


def require_equal(one: float, other: float) -> None:
    """Raise if two log-densities differ."""
    if not np.isclose(one, other, rtol=1e-9, atol=1e-9):
        raise ValueError(f"the log-density is {one}, not {other}")


def nuts(library: str | None = None, **kwargs: Any) -> Callable[[str], None]:
    """Return the column of a sampler that `pymc.sample` calls."""

    def run(name: str) -> None:
        if library is not None and find_spec(library) is None:
            raise NotInstalledError(library)
        with model_of(name):
            idata = pm.sample(
                draws=10, tune=10, chains=1, cores=1, random_seed=SEED, progressbar=False,
                compute_convergence_checks=False, **kwargs,
            )  # fmt: skip
        require_finite(idata.posterior)

    return run


def advi(name: str) -> None:
    """Fit a mean-field normal distribution."""
    with model_of(name):
        fit = pm.fit(20, method="advi", random_seed=SEED, progressbar=False)
        require_finite(fit.sample(10, random_seed=SEED).posterior)


def smc(name: str) -> None:
    """Draw by sequential Monte Carlo."""
    with model_of(name):
        idata = pm.sample_smc(
            20, chains=1, cores=1, random_seed=SEED, progressbar=False,
            compute_convergence_checks=False, compile_kwargs=INTERPRETED,
        )  # fmt: skip
    require_finite(idata.posterior)


def prior_predictive(name: str) -> Any:
    """Draw from the prior."""
    with model_of(name):
        idata = pm.sample_prior_predictive(5, random_seed=SEED, compile_kwargs=INTERPRETED)
    require_finite(idata.prior)
    require_finite(idata.prior_predictive)
    return idata.prior


def posterior_predictive(name: str) -> None:
    """Draw observations for given values of the parameters."""
    values = prior_predictive(name)
    with model_of(name):
        idata = pm.sample_posterior_predictive(
            values.to_dataset(), random_seed=SEED, progressbar=False, compile_kwargs=INTERPRETED
        )
    require_finite(idata.posterior_predictive)


def draws_with_jax(name: str) -> None:
    """Draw from the prior with PyTensor's JAX back end."""
    if find_spec("jax") is None:
        raise NotInstalledError("jax")
    with model_of(name):
        idata = pm.sample_prior_predictive(3, random_seed=SEED, compile_kwargs={"mode": "JAX"})
    require_finite(idata.prior_predictive)


def do(name: str) -> None:
    """Set the concentration."""
    model = pm.do(model_of(name), {"k": 2.0})
    log_density(model)
    with model:
        idata = pm.sample_prior_predictive(3, random_seed=SEED, compile_kwargs=INTERPRETED)
    require_finite(idata.prior_predictive)


def observe(name: str) -> None:
    """Observe a free variable; compare with the log-density of a model with the observation."""
    model = pm.observe(model_of(name, observed=False), {"y": data(name)})
    written = model_of(name)
    require_equal(log_density(model, written.initial_point()), log_density(written))


def marginalize(name: str) -> None:
    """Sum over labels; the log-density is compared with the sum over all of their values."""
    if not ROWS[name].has_parameters:
        raise NotApplicableError
    import pymc_extras

    model = mixture_of(name)
    full = model.compile_logp(**INTERPRETED)
    point = model.initial_point()
    terms = [
        float(full(point | {"z": np.array(labels)})) for labels in product([0, 1], repeat=N_ROWS)
    ]
    marginal = pymc_extras.marginalize(model, ["z"])
    kept = {value.name: point[value.name] for value in marginal.value_vars}
    require_equal(log_density(marginal, kept), logsumexp(terms))


def pickled(name: str) -> None:
    """Pickle the model."""
    model = model_of(name)
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    require_equal(log_density(copy), log_density(model))


COLUMNS: dict[str, Callable[[str], Any]] = {
    "NUTS": nuts(nuts_sampler="pymc", compile_kwargs=INTERPRETED, nuts=SHORT),
    "NUTS, JAX": nuts("jax", nuts_sampler="pymc", backend="jax", nuts=SHORT),
    "nutpie, Numba": nuts("nutpie", nuts_sampler="nutpie"),
    "nutpie, JAX": nuts(
        "nutpie", nuts_sampler="nutpie",
        nuts_sampler_kwargs={"backend": "jax", "gradient_backend": "jax"},
    ),
    "NumPyro": nuts("numpyro", nuts_sampler="numpyro"),
    "BlackJAX": nuts("blackjax", nuts_sampler="blackjax"),
    "ADVI": advi,
    "SMC": smc,
    "prior predictive": prior_predictive,
    "posterior predictive": posterior_predictive,
    "draws, JAX": draws_with_jax,
    "`pm.do`": do,
    "`pm.observe`": observe,
    "`marginalize`": marginalize,
    "cloudpickle": pickled,
}  # fmt: skip


def measure(row: str, column: str) -> str:
    """Return the entry of a cell: success, not applicable, or the reason for failure."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), pytensor.config.change_flags(**INTERPRETED):
            warnings.simplefilter("ignore")
            COLUMNS[column](row)
    except NotApplicableError:
        return NOT_APPLICABLE
    except NotInstalledError as error:
        return f"{error} is not installed"
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:200]}"
    return WORKS


def table(cells: dict[str, dict[str, str]], columns: Iterable[str]) -> list[str]:
    """Return the lines of the table, with numbers that refer to the reasons below it."""
    reasons: list[str] = []
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + ":-:|" * len(list(columns))]
    for row, entries in cells.items():
        shown = []
        for column in columns:
            entry = entries.get(column, NOT_RUN)
            if entry not in (WORKS, NOT_APPLICABLE, NOT_RUN):
                if entry not in reasons:
                    reasons.append(entry)
                entry = f"no ({reasons.index(entry) + 1})"
            shown.append(entry)
        lines.append(f"| {row if row in CASES else f'`{row}`'} | {' | '.join(shown)} |")
    if reasons:
        lines += ["", *(f"{i}. `{reason}`" for i, reason in enumerate(reasons, 1))]
    return lines


HEAD = """# Compatibility

Each row is a model with a free and an observed variable of the given distribution or transform,
with inferred parameters; `Hinge` and `MulticlassHinge` only have an observed variable. Each cell is
a short run: "yes" means that the run finishes with finite results, not that the few draws are
representative of the posterior, "–" that the combination does not apply.
`python -m benchmarks.compatibility` writes this page.

- `tests/distributions/test_back_ends.py` compares log-density and gradient of all rows between
  PyTensor's Numba, C and JAX backends.
- NUTS, ADVI, SMC and predictive sampling run without compilation (`mode="FAST_COMPILE"`). *NUTS,
  JAX* is {func}`pymc.sample` with `backend="jax"`; *nutpie, JAX* differentiates with JAX, as
  NumPyro and BlackJAX do.
- `pm.observe` is compared with the model defined with the observation, `marginalize` of
  pymc-extras with the sum over all values of the labels of a mixture with two concentrations, and
  a pickled model with the original.

With JAX, random draws call NumPy, because rejection sampling needs a random number of proposals;
JAX computes all log-densities. The series of {class}`~pymc_geodesic.SineBivariateVonMises` has
1,024 terms with JAX, enough for κ below 24,000 and |λ| below 1,500; beyond that the log-density
is NaN. Sparse data are not supported with JAX.

PyMC 6.4 passes an argument that BlackJAX 1.7 does not accept: *BlackJAX* was measured with 1.2.5.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="NAME")
    parser.add_argument(
        "--columns", nargs="+", default=list(COLUMNS), choices=COLUMNS, metavar="NAME"
    )
    parser.add_argument("--results", type=Path, help="file with cells measured before")
    options = parser.parse_args()
    known = options.results is not None and options.results.exists()
    cells = json.loads(options.results.read_text()) if known else {}
    for column, row in product(options.columns, options.rows):
        entries = cells.setdefault(row, {})
        if column not in entries:
            entries[column] = measure(row, column)
            print(f"{row}, {column}: {entries[column]}", flush=True)
            if options.results is not None:
                options.results.write_text(json.dumps(cells, indent=1))
    measured = {row: cells[row] for row in ROWS if row in cells}
    columns = [column for column in COLUMNS if any(column in each for each in measured.values())]
    PAGE.write_text(HEAD + "\n" + "\n".join(table(measured, columns)) + "\n")


if __name__ == "__main__":
    main()
