"""Probabilistic matrix factorization by singular values and two orthonormal frames.

Entries of a matrix are normal around F, of rank Q, and some are held out. The parametrizations are

- *factors*: F = A Bᵀ with normal factor matrices, as in PyMC's gallery (Salakhutdinov and Mnih
  2008), identified up to a Q × Q matrix;
- *frames*: F = U diag(d) Vᵀ with uniform orthonormal frames U and V and ordered d, the singular
  values of a Q × Q normal matrix (Hoff 2007 has independent normal ones), identified up to signs.

For each sampler the table has the R-hat and the worst effective sample size of identified
quantities, per 1,000 gradient evaluations and per processor second, and RMSE and log predictive
density of the held-out entries. The components are those of the singular value decomposition of
each draw of F, with aligned signs.

The matrices are *fertility*, births per woman in a hundred countries from 1960 to 2011 (World Bank,
bundled with statsmodels), and *lectures*, ratings of lecturers by students in lme4's InstEval,
which needs the data folder.

Run it with ``python examples/matrix_factorization.py``; it takes about ten minutes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import statsmodels.api as sm
from pymc.distributions.transforms import ordered
from script_parts import parse_options

import pymc_geodesic as pg
from pymc_geodesic.datasets.folder import read_arrays

RANK = 3
SEED = 1


class Entries(NamedTuple):
    """Standardized entries of a matrix: training entries, then held-out entries.

    Attributes
    ----------
    shape : tuple of int
    row, column, value : ndarray, shape (n,)
    n_fit : int
    """

    shape: tuple[int, int]
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray
    n_fit: int


def leave_out(row: np.ndarray, column: np.ndarray, value: np.ndarray, share: float) -> Entries:
    """Hold out entries at random; subtract column means and divide by one standard deviation."""
    order = np.random.default_rng(SEED).permutation(len(value))
    row, column, value = row[order], column[order], value[order]
    n_fit = round((1.0 - share) * len(value))
    n_columns = column.max() + 1
    sums = np.bincount(column[:n_fit], value[:n_fit], minlength=n_columns)
    counts = np.bincount(column[:n_fit], minlength=n_columns)
    value = value - (sums / np.maximum(counts, 1))[column]
    return Entries((row.max() + 1, n_columns), row, column, value / value[:n_fit].std(), n_fit)


def fertility(n_countries: int = 100) -> Entries:
    """Births per woman by country and year."""
    table = sm.datasets.fertility.load_pandas().data
    rates = table[[str(year) for year in range(1960, 2012)]].dropna().to_numpy()[:n_countries]
    row, column = np.indices(rates.shape).reshape(2, -1)
    return leave_out(row, column, rates.ravel(), 0.25)


def lectures(min_student: int = 30, min_lecturer: int = 100) -> Entries:
    """Ratings from 1 to 5 by students and lecturers with many ratings."""
    arrays = read_arrays("insteval.npz", data_home=None, origin="InstEval of the R package lme4")
    student, lecturer, rating = (arrays[name].astype(int) for name in ("s", "d", "y"))
    kept = (np.bincount(student)[student] >= min_student) & (
        np.bincount(lecturer)[lecturer] >= min_lecturer
    )
    row, column = (np.unique(x[kept], return_inverse=True)[1] for x in (student, lecturer))
    return leave_out(row, column, rating[kept].astype(float), 0.2)


MATRICES = {"fertility": fertility, "lectures": lectures}


def add_likelihood(entries: Entries, left: Any, right: Any) -> None:
    """Add the likelihood of the training entries."""
    row, column = entries.row[: entries.n_fit], entries.column[: entries.n_fit]
    mean = (left[row] * right[column]).sum(axis=1)
    sigma = pm.HalfNormal("sigma", 1.0)
    pm.Normal("value", mean, sigma, observed=entries.value[: entries.n_fit])


def frames(entries: Entries) -> pm.Model:
    """F = U diag(d) Vᵀ."""
    n, m = entries.shape
    scale = np.sqrt(n * m) / RANK  # prior variance 1 of an entry of F
    with pm.Model() as model:
        U = pg.UniformStiefel("U", shape=(n, RANK), initval="prior")
        V = pg.UniformStiefel("V", shape=(m, RANK), initval="prior")
        d = pm.HalfNormal(
            "d", scale, shape=RANK, transform=ordered, initval=0.1 * scale * np.arange(1, RANK + 1)
        )
        i, j = np.triu_indices(RANK, 1)
        pm.Potential("repulsion", pt.log(d[j] ** 2 - d[i] ** 2).sum())
        add_likelihood(entries, pm.Deterministic("left", U * d), pm.Deterministic("right", V))
    return model


def factors(entries: Entries) -> pm.Model:
    """F = A Bᵀ."""
    n, m = entries.shape
    with pm.Model() as model:
        A = pm.Normal("left", 0.0, 1.0, shape=(n, RANK))
        B = pm.Normal("right", 0.0, pm.HalfNormal("scale", 1.0), shape=(m, RANK))
        add_likelihood(entries, A, B)
    return model


def make_samplers() -> dict[str, tuple[Callable[[Entries], pm.Model], Callable[[], Any]]]:
    """Return model and step method by name; None is NUTS."""
    flat = dict.fromkeys(("U", "V"), pg.manifolds.Euclidean)
    return {
        "frames, GMC, coordinates of the transform": (frames, lambda: pg.GMC(manifolds=flat)),
        "frames, GMC, geodesics": (frames, pg.GMC),
        "frames, NUTS": (frames, lambda: None),
        "factors, NUTS": (factors, lambda: None),
    }


def right_singular_vectors(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return singular values and right singular vectors of left @ rightᵀ; leading axes batch."""
    r_left = np.linalg.qr(left, mode="r")
    q_right, r_right = np.linalg.qr(right)
    _, d, vt = np.linalg.svd(r_left @ np.swapaxes(r_right, -1, -2))
    return d, q_right @ np.swapaxes(vt, -1, -2)


def identified(posterior: Any, entries: Entries, n_entries: int = 200) -> dict[str, np.ndarray]:
    """Return draws of identified quantities and a factor, shape (chains, draws, size), by name."""
    left, right = posterior["left"].values, posterior["right"].values
    d, V = right_singular_vectors(left, right)
    signs = np.sign(np.einsum("cdmq,mq->cdq", V, V[0, -1]))[:, :, None, :]
    some = np.random.default_rng(SEED).choice(len(entries.value), n_entries, replace=False)
    fitted = (left[:, :, entries.row[some]] * right[:, :, entries.column[some]]).sum(axis=-1)
    if "V" in posterior:
        right = right * np.sign((right * V[0, -1, :, ::-1]).sum(axis=-2, keepdims=True))
    shape = (*d.shape[:2], -1)
    return {
        "sigma": posterior["sigma"].values[..., None],
        "fitted values": fitted,
        "singular values": d,
        "components": (V * signs).reshape(shape),
        "factor": right.reshape(shape),
    }


def worst(values: np.ndarray) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size of any coordinate."""
    data = az.from_dict({"posterior": {"x": values}})
    return float(az.rhat(data)["x"].max()), float(az.ess(data)["x"].min())


def left_out_errors(posterior: Any, entries: Entries, n_draws: int = 300) -> tuple[float, float]:
    """Return RMSE and mean log predictive density of the held-out entries."""
    left, right = (
        posterior[name].values.reshape(-1, size, RANK)
        for name, size in zip(("left", "right"), entries.shape, strict=True)
    )
    some = np.linspace(0, len(left) - 1, n_draws).astype(int)
    row, column = entries.row[entries.n_fit :], entries.column[entries.n_fit :]
    value = entries.value[entries.n_fit :]
    mean = np.stack([(left[k][row] * right[k][column]).sum(axis=1) for k in some])
    sigma = posterior["sigma"].values.ravel()[some][:, None]
    densities = -0.5 * ((value - mean) / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi))
    log_mean = np.logaddexp.reduce(densities) - np.log(len(some))
    return float(np.sqrt(((value - mean.mean(axis=0)) ** 2).mean())), float(log_mean.mean())


def sample(model: pm.Model, make_step: Callable[[], Any], draws: int) -> tuple[Any, float]:
    """Return draws of two chains, and processor seconds above those of a run of 20 draws."""
    seconds = []
    for n_draws, n_tune in ((20, 20), (20, 20), (draws, 1000)):  # the first run fills caches
        with model:
            before = time.process_time()
            idata = pm.sample(
                draws=n_draws, tune=n_tune, chains=2, cores=1, step=make_step(), random_seed=SEED,
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
            seconds.append(time.process_time() - before)
    return idata, seconds[-1] - seconds[-2]


def run(entries: Entries, names: list[str], draws: int) -> None:
    """Run each sampler and print its row of the table."""
    columns = ["gradients", "seconds", "RMSE", "lpd"]
    quantities = ["sigma", "fitted values", "singular values", "components", "factor"]
    columns += [f"{name}: R-hat, ESS/1,000 gradients, ESS/s" for name in quantities]
    print(f"| parametrization and sampler | {' | '.join(columns)} |")
    for name in names:
        build, make_step = make_samplers()[name]
        idata, seconds = sample(build(entries), make_step, draws)
        stats = idata.sample_stats
        gradients = float(stats["n_grad" if "n_grad" in stats else "n_steps"].sum())
        error, density = left_out_errors(idata.posterior, entries)
        print(f"| {name} | {gradients:.0f} | {seconds:.1f} | {error:.4f} | {density:.4f} |", end="")
        for values in identified(idata.posterior, entries).values():
            rhat, ess = worst(values)
            print(f" {rhat:.2f}, {1e3 * ess / gradients:.1f}, {ess / seconds:.1f} |", end="")
        print(flush=True)
    print("Gradients are those of the draws kept; seconds, of the processor, include the warm-up.")


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="per chain, of two chains")
    parser.add_argument("--matrices", nargs="+", default=list(MATRICES), choices=MATRICES)
    parser.add_argument("--only", nargs="+", default=list(make_samplers()), choices=make_samplers())
    few = ["frames, GMC, geodesics"]
    options = parse_options(parser, draws=100, matrices=["fertility"], only=few)
    for name in options.matrices:
        try:
            entries = MATRICES[name]()
        except FileNotFoundError as error:
            print(f"\n{name} skipped: {error}")
            continue
        n, m = entries.shape
        n_left_out = len(entries.value) - entries.n_fit
        print(f"\n{name}: {n} × {m}, {entries.n_fit} entries, {n_left_out} held out, rank {RANK}")
        variance = (entries.value[entries.n_fit :] ** 2).mean()
        print(f"column means: RMSE {np.sqrt(variance):.4f}")
        run(entries, options.only, options.draws)


if __name__ == "__main__":
    main()
