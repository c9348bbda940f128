"""Bayesian principal component analysis in five parametrizations of one model.

The rows of a table are normal with covariance W Wᵀ + σ² I, and W has three columns of loadings
with independent standard normal entries (Tipping and Bishop 1999). W is only identified up to a
rotation of its columns. The parametrizations are

- *loadings*: W itself, and *loadings and scores*: W with the scores of all rows;
- *triangular*: the lower triangular W with a positive diagonal, with the distribution that the QR
  decomposition of a normal matrix has (Leung and Drton 2016);
- *frames*: W = U diag(√λ), with a uniform orthonormal frame U and ordered λ, which have the density
  of the eigenvalues of a Wishart matrix (Nirwan and Bertschinger 2019).

All of them give W Wᵀ and σ the same posterior. *Ordered variances*, loadings whose columns have
ordered standard deviations, have another prior and leave the rotation free.

For each sampler the table has the R-hat and the worst effective sample size of identified
quantities, per 1,000 gradient evaluations and per processor second, the log predictive density of
held-out rows, and the root mean squared error of each of their entries predicted from the others.

Run it with ``python examples/bayesian_pca.py``; it takes about ten minutes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from script_parts import parse_options
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA

import pymc_geodesic as pg

TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer}
N_AXES = 3
SEED = 1


class Table(NamedTuple):
    """Standardized rows: training rows, centered, and held-out rows.

    Attributes
    ----------
    rows : ndarray, shape (n, D)
    scatter : ndarray, shape (D, D)
        Sums of squares and products, Wishart with n − 1 degrees of freedom.
    left_out : ndarray, shape (m, D)
        Minus the means of the training rows.
    """

    rows: np.ndarray
    scatter: np.ndarray
    left_out: np.ndarray


def make_table(name: str) -> Table:
    """Read a table, hold out 20 % of its rows and standardize."""
    rows = TABLES[name]().data
    order = np.random.default_rng(SEED).permutation(len(rows))
    fit, left_out = np.split(rows[order], [4 * len(rows) // 5])
    mean, sd = fit.mean(axis=0), fit.std(axis=0)
    fit, left_out = (fit - mean) / sd, (left_out - mean) / sd
    return Table(fit, fit.T @ fit, left_out)


def add_likelihood(table: Table, loadings: Any, sigma: Any) -> None:
    """Add the scatter matrix, which is sufficient for the covariance."""
    n, d = table.rows.shape
    covariance = loadings @ loadings.T + sigma**2 * pt.eye(d)
    pm.Wishart("scatter", nu=n - 1, V=covariance, observed=table.scatter)


def frames(table: Table) -> pm.Model:
    """W = U diag(√λ)."""
    d = table.rows.shape[1]
    with pm.Model() as model:
        axes = pg.UniformStiefel("axes", shape=(d, N_AXES), initval="prior")
        variances = pm.Gamma(
            "variances", 0.5 * (d - N_AXES + 1), 0.5, shape=N_AXES, transform=ordered,
            initval=np.arange(1.0, N_AXES + 1.0),
        )  # fmt: skip
        i, j = np.triu_indices(N_AXES, 1)
        pm.Potential("repulsion", pt.log(variances[j] - variances[i]).sum())
        sigma = pm.HalfNormal("sigma", 1.0)
        W = pm.Deterministic("W", axes * pt.sqrt(variances))
        add_likelihood(table, W, sigma)
    return model


def loadings(table: Table) -> pm.Model:
    """Independent loadings."""
    with pm.Model() as model:
        W = pm.Normal("W", 0.0, 1.0, shape=(table.rows.shape[1], N_AXES))
        add_likelihood(table, W, pm.HalfNormal("sigma", 1.0))
    return model


def loadings_and_scores(table: Table) -> pm.Model:
    """Independent loadings, and a score of each row on each axis."""
    n, d = table.rows.shape
    with pm.Model() as model:
        W = pm.Normal("W", 0.0, 1.0, shape=(d, N_AXES))
        scores = pm.Normal("scores", 0.0, 1.0, shape=(n, N_AXES))
        pm.Normal("x", scores @ W.T, pm.HalfNormal("sigma", 1.0), observed=table.rows)
    return model


def triangular(table: Table) -> pm.Model:
    """Lower triangular loadings with a positive diagonal."""
    d = table.rows.shape[1]
    i, j = np.tril_indices(d, -1, N_AXES)
    on_diagonal = np.arange(N_AXES)
    with pm.Model() as model:
        below = pm.Normal("below", 0.0, 1.0, shape=len(i))
        squares = pm.ChiSquared("squares", N_AXES - on_diagonal)
        W = pt.zeros((d, N_AXES))[i, j].set(below)[on_diagonal, on_diagonal].set(pt.sqrt(squares))
        add_likelihood(table, pm.Deterministic("W", W), pm.HalfNormal("sigma", 1.0))
    return model


def ordered_variances(table: Table) -> pm.Model:
    """Columns of loadings with ordered standard deviations."""
    with pm.Model() as model:
        scales = pm.HalfNormal(
            "scales", 2.0, shape=N_AXES, transform=ordered, initval=np.arange(1.0, N_AXES + 1.0)
        )
        W = pm.Normal("W", 0.0, scales, shape=(table.rows.shape[1], N_AXES))
        add_likelihood(table, W, pm.HalfNormal("sigma", 1.0))
    return model


def make_samplers() -> dict[str, tuple[Callable[[Table], pm.Model], Callable[[], Any]]]:
    """Return model and step method by name; None is NUTS."""
    flat = {"axes": pg.manifolds.Euclidean}
    return {
        "frames, GMC, coordinates of the transform": (frames, lambda: pg.GMC(manifolds=flat)),
        "frames, GMC, geodesics": (frames, pg.GMC),
        "frames, NUTS": (frames, lambda: None),
        "loadings, NUTS": (loadings, lambda: None),
        "loadings and scores, NUTS": (loadings_and_scores, lambda: None),
        "triangular, NUTS": (triangular, lambda: None),
        "ordered variances, NUTS": (ordered_variances, lambda: None),
    }


def invariants(idata: Any, table: Table) -> dict[str, np.ndarray]:
    """Return draws of identified quantities, shape (chains, draws, size), by name.

    The axes are eigenvectors of W Wᵀ, with the signs of those of the classical analysis. Signs of
    the loadings are aligned where only they are not identified.
    """
    W = idata.posterior["W"].values
    d = W.shape[2]
    covariance = np.einsum("cdiq,cdjq->cdij", W, W)
    values, vectors = np.linalg.eigh(covariance)
    axes = vectors[..., : -N_AXES - 1 : -1]
    classical = np.linalg.eigh(table.scatter)[1][:, : -N_AXES - 1 : -1]
    axes = axes * np.sign(np.einsum("cdiq,iq->cdq", axes, classical))[:, :, None, :]
    projector = np.einsum("cdiq,cdjq->cdij", axes, axes)
    upper = np.triu_indices(d)
    if "axes" in idata.posterior:
        W = W * np.sign((W * classical[:, ::-1]).sum(axis=-2, keepdims=True))
    return {
        "sigma": idata.posterior["sigma"].values[..., None],
        "variances": values[..., -N_AXES:],
        "projector": projector[..., upper[0], upper[1]],
        "axes": axes.reshape(*axes.shape[:2], -1),
        "W": W.reshape(*W.shape[:2], -1)[..., np.ptp(W, axis=(0, 1)).ravel() > 0.0],
    }


def worst(values: np.ndarray) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size of any coordinate."""
    data = az.from_dict({"posterior": {"x": values}})
    return float(az.rhat(data)["x"].max()), float(az.ess(data)["x"].min())


def left_out_errors(idata: Any, table: Table, n_draws: int = 300) -> tuple[float, float]:
    """Return log predictive density per row, and error of entries predicted from the others."""
    W = idata.posterior["W"].values.reshape(-1, table.rows.shape[1], N_AXES)
    sigma = idata.posterior["sigma"].values.ravel()
    n, d = table.rows.shape
    densities, predictions = [], []
    for k in np.linspace(0, len(sigma) - 1, n_draws).astype(int):
        covariance = (W[k] @ W[k].T + sigma[k] ** 2 * np.eye(d)) * (1.0 + 1.0 / n)
        precision = np.linalg.inv(covariance)
        weighted = table.left_out @ precision
        squares = (weighted * table.left_out).sum(axis=1)
        constant = np.linalg.slogdet(covariance)[1] + d * np.log(2.0 * np.pi)
        densities.append(-0.5 * (squares + constant))
        predictions.append(table.left_out - weighted / np.diag(precision))
    log_mean = np.logaddexp.reduce(densities, axis=0) - np.log(len(densities))
    error = table.left_out - np.mean(predictions, axis=0)
    return float(log_mean.mean()), float(np.sqrt((error**2).mean()))


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


def run(table: Table, names: list[str], draws: int) -> None:
    """Run each sampler and print its row of the table."""
    baseline = PCA(N_AXES).fit(table.rows).score(table.left_out)
    print(f"maximum likelihood: log density of a held-out row {baseline:.3f}")
    quantities = ["sigma", "variances", "projector", "axes", "W"]
    print("| parametrization and sampler | gradients | seconds | lpd | RMSE |", end="")
    print("".join(f" {name}: R-hat, ESS/1,000 gradients, ESS/s |" for name in quantities))
    for name in names:
        build, make_step = make_samplers()[name]
        idata, seconds = sample(build(table), make_step, draws)
        stats = idata.sample_stats
        gradients = float(stats["n_grad" if "n_grad" in stats else "n_steps"].sum())
        density, error = left_out_errors(idata, table)
        print(f"| {name} | {gradients:.0f} | {seconds:.1f} | {density:.3f} | {error:.4f} |", end="")
        for values in invariants(idata, table).values():
            rhat, ess = worst(values)
            print(f" {rhat:.2f}, {1e3 * ess / gradients:.1f}, {ess / seconds:.1f} |", end="")
        print(flush=True)
    print("Gradients are those of the draws kept; seconds, of the processor, include the warm-up.")


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="per chain, of two chains")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--only", nargs="+", default=list(make_samplers()), choices=make_samplers())
    few = ["frames, GMC, coordinates of the transform"]
    options = parse_options(parser, draws=100, tables=["wine"], only=few)
    for name in options.tables:
        table = make_table(name)
        n, d = table.rows.shape
        print(f"\n{name}: {n} rows of {d} columns, {len(table.left_out)} held-out rows")
        run(table, options.only, options.draws)


if __name__ == "__main__":
    main()
