"""Figures of the front page of the documentation.

Three small runs with default settings: the mean directions of three groups on a sphere, a logistic
regression on a million rows, and a support vector machine.

Run it with ``python examples/front_page.py``; it takes some two minutes.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from scipy.special import expit
from script_parts import parse_options

import pymc_geodesic as pg

BLUE, ORANGE, GREEN, GREY = "#2a7f9e", "#d9622b", "#5a8f3c", "#9aa3a8"
QUIET = {"progressbar": False, "compute_convergence_checks": False}


def _seen(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orthographic projection of points of a sphere, and which of them are on its near side."""
    turn, tilt = np.deg2rad(-25.0), np.deg2rad(25.0)
    x = np.cos(turn) * points[:, 0] - np.sin(turn) * points[:, 1]
    y = np.sin(turn) * points[:, 0] + np.cos(turn) * points[:, 1]
    up = np.cos(tilt) * points[:, 2] + np.sin(tilt) * x
    return y, up, np.cos(tilt) * x - np.sin(tilt) * points[:, 2] > 0.0


def _globe(axes: plt.Axes) -> None:
    t = np.linspace(0.0, 2.0 * np.pi, 361)
    axes.fill(np.cos(t), np.sin(t), color="#f2f5f6", zorder=0)
    axes.plot(np.cos(t), np.sin(t), color=GREY, linewidth=1.0)
    circles = [np.column_stack([np.cos(t), np.sin(t), 0 * t])]
    circles += [
        np.column_stack([np.cos(a) * np.cos(t), np.sin(a) * np.cos(t), np.sin(t)])
        for a in np.deg2rad([0, 45, 90, 135])
    ]
    for circle in circles:
        x, y, near = _seen(circle)
        axes.plot(np.where(near, x, np.nan), y, color=GREY, linewidth=0.5, zorder=1)


def directions(draws: int) -> Figure:
    """Three groups of directions, and draws of their mean directions."""
    means = np.array([[0.9, -0.3, 0.3], [0.6, 0.7, 0.4], [0.7, 0.2, -0.7]])
    means /= np.linalg.norm(means, axis=1)[:, None]
    figure, axes = plt.subplots(figsize=(3.2, 3.2), layout="constrained")
    _globe(axes)
    with pm.Model():
        mu = pg.UniformSphere("mu", shape=(3, 3))
        kappa = pm.HalfNormal("kappa", 50.0, shape=3)
        for i, color in enumerate((BLUE, ORANGE, GREEN)):
            rows, _ = pg.datasets.make_vmf_mixture([means[i]], 30.0, 60, random_seed=i + 1)
            pg.VonMisesFisher(f"y{i}", mu=mu[i], kappa=kappa[i], observed=rows)
            x, y, near = _seen(rows)
            axes.plot(x[near], y[near], ".", color=color, markersize=4, alpha=0.5)
        idata = pm.sample(draws, tune=draws, step=pg.GMC(), chains=2, random_seed=1, **QUIET)
    for i, color in enumerate((BLUE, ORANGE, GREEN)):
        x, y, _ = _seen(idata.posterior["mu"].values[:, :, i].reshape(-1, 3))
        axes.plot(x, y, ".", color=color, markersize=1.5)
        axes.plot(x.mean(), y.mean(), "+", color="black", markersize=9)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def many_rows(draws: int, n_rows: int = 1_000_000) -> Figure:
    """Two coefficients of a logistic regression, with the normal approximation."""
    rng = np.random.default_rng(1)
    covariates = rng.normal(size=(n_rows, 2)) @ np.array([[1.0, 0.7], [0.0, 0.7]])
    labels = (rng.random(n_rows) < expit(covariates @ [0.8, -0.4])).astype(float)
    with pm.Model():
        X, y = pm.Data("X", covariates), pm.Data("y", labels)
        w = pm.Normal("w", 0.0, 1.0, shape=2)
        pm.Bernoulli("label", logit_p=X @ w, observed=y)
        step = pg.SGGMC(batch_size=100, minibatch=["X", "y"])
        idata = pm.sample(draws, tune=draws, step=step, chains=2, random_seed=1, **QUIET)
    drawn = idata.posterior["w"].values.reshape(-1, 2)
    mode = np.zeros(2)
    for _ in range(20):
        p = expit(covariates @ mode)
        hessian = (covariates * (p * (1.0 - p))[:, None]).T @ covariates + np.eye(2)
        mode += np.linalg.solve(hessian, covariates.T @ (labels - p) - mode)
    t = np.linspace(0.0, 2.0 * np.pi, 181)
    factor = np.linalg.cholesky(np.linalg.inv(hessian))
    figure, axes = plt.subplots(figsize=(3.2, 3.2), layout="constrained")
    axes.plot(*drawn.T, ".", color=BLUE, markersize=2, alpha=0.5)
    for share in (0.5, 0.95):
        radius = np.sqrt(-2.0 * np.log(1.0 - share))
        ring = mode[:, None] + factor @ (radius * np.array([np.cos(t), np.sin(t)]))
        axes.plot(*ring, color=ORANGE, linewidth=1.5)
    axes.set(xlabel="$w_1$", ylabel="$w_2$", xticks=[], yticks=[])
    axes.spines[["right", "top"]].set_visible(False)
    return figure


def classifier(draws: int) -> Figure:
    """Draw decision boundaries between two classes from a hinge posterior."""
    rng = np.random.default_rng(4)
    labels = np.repeat([-1, 1], 40)
    points = rng.normal(size=(80, 2)) * 0.9 + labels[:, None] * [0.9, 0.8]
    with pm.Model():
        w = pm.Normal("w", 0.0, 2.0, shape=2)
        b = pm.Normal("b", 0.0, 2.0)
        pg.Hinge("label", points @ w + b, observed=labels)
        idata = pm.sample(
            draws, tune=draws, step=pg.SubgradientHMC(), chains=2, random_seed=1, **QUIET
        )
    w, b = idata.posterior["w"].values.reshape(-1, 2), idata.posterior["b"].values.ravel()
    figure, axes = plt.subplots(figsize=(3.2, 3.2), layout="constrained")
    x = np.array([-3.2, 3.2])
    for i in range(0, len(b), max(1, len(b) // 60)):
        axes.plot(x, -(w[i, 0] * x + b[i]) / w[i, 1], color=GREY, linewidth=0.6, alpha=0.5)
    for label, color in ((-1, BLUE), (1, ORANGE)):
        axes.plot(*points[labels == label].T, ".", color=color, markersize=7)
    axes.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), xticks=[], yticks=[])
    axes.spines[["right", "top"]].set_visible(False)
    return figure


PICTURES = {
    "door_directions": directions,
    "door_rows": many_rows,
    "door_classifier": classifier,
}


def main() -> None:
    """Run all three, and write their pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("examples/output"))
    arguments = parse_options(parser, draws=300)
    matplotlib.use("Agg")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        picture(arguments.draws).savefig(arguments.output / f"{name}.png", dpi=130)


if __name__ == "__main__":
    main()
