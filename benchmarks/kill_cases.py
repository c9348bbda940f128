"""Short runs for kill tests: each step method and each source of minibatches."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy import sparse

import pymc_geodesic as pg

N_ROWS = 600
ROWS = np.random.default_rng(1).normal(size=(N_ROWS, 2))
LABELS = np.where(ROWS @ [1.0, -0.5] + np.random.default_rng(2).normal(size=N_ROWS) > 0, 1.0, -1.0)
MINIBATCH = {"minibatch": ["x"], "batch_size": 20}

Made = tuple[pm.Model, Any]


class Case(NamedTuple):
    """A run: functions that make its model and step, and its length.

    Attributes
    ----------
    make : callable
        Function of ``compile_kwargs`` that returns the model and the step method.
    tune, draws : int
    needs_step : bool
        Whether the step cannot be serialized, so that `resume` needs it as an argument.
    remembers : bool
        Whether a step that has sampled before starts in another state than a new one, as
        `pymc.NUTS` in several processes.
    """

    make: Callable[[dict | None], Made]
    tune: int = 500
    draws: int = 500
    needs_step: bool = False
    remembers: bool = False


class BlocksOnDisk:
    """Blocks of rows in files, read in sequence.

    Parameters
    ----------
    folder : Path
    n_blocks : int
    """

    total_size = N_ROWS

    def __init__(self, folder: Path, n_blocks: int = 6) -> None:
        self.paths = [folder / f"rows-{block}.npy" for block in range(n_blocks)]
        for path, block in zip(self.paths, np.split(ROWS, n_blocks), strict=True):
            if not path.exists():
                part = path.with_suffix(f".{os.getpid()}.npy")
                np.save(part, block)
                part.replace(path)

    def __iter__(self) -> Iterator[tuple[np.ndarray]]:
        for path in self.paths:
            yield (np.load(path),)


def mixed() -> pm.Model:
    """Variables on a line, in a plane, on a sphere and on a half-line, and rows."""
    with pm.Model() as model:
        x = pm.Data("x", ROWS)
        pm.Normal("a", 3.0, 0.5)
        b = pm.Normal("b", [-2.0, 5.0], 1.0)
        pg.VonMisesFisher("mu", [0.0, 0.0, 1.0], 20.0)
        pm.HalfNormal("s", 1.0)
        pm.Normal("seen", b, 1.0, observed=x)
        pm.Deterministic("c", b[0] ** 2)
    return model


def svm() -> pm.Model:
    """Make a posterior with kinks."""
    with pm.Model() as model:
        x, y = pm.Data("x", ROWS), pm.Data("y", LABELS)
        w = pm.Normal("w", 0.0, 1.0, shape=2)
        pg.Hinge("label", x @ w, observed=y)
    return model


def counts() -> pm.Model:
    """Proportions, rates and counts."""
    seen = np.random.default_rng(3).multinomial(3, [0.6, 0.3, 0.1], size=N_ROWS)
    with pm.Model() as model:
        x = pm.Data("x", seen)
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("n", 3, p, observed=x)
    return model


def sparse_rows() -> pm.Model:
    with pm.Model() as model:
        x = pg.SparseData("x", sparse.csr_array(np.where(ROWS > 0.0, ROWS, 0.0)))
        w = pm.Normal("w", shape=2)
        pm.Potential("fit", -0.5 * (x @ w - 1.0) ** 2)
    return model


def plain(model: Callable[[], pm.Model], kind: Any, **arguments: Any) -> Callable:
    """Make a step of all variables."""

    def make(compile_kwargs: dict | None) -> Made:
        made = model()
        return made, kind(model=made, compile_kwargs=compile_kwargs, **arguments)

    return make


def minibatches_of_two(kind: Any) -> Callable:
    """Make a step of a support vector machine."""
    return plain(svm, kind, minibatch=["x", "y"], batch_size=20)


def from_disk(compile_kwargs: dict | None) -> Made:
    folder = Path(tempfile.gettempdir()) / f"pymc_geodesic-kills-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    blocks = BlocksOnDisk(folder)
    return plain(mixed, pg.SGGMC, batches=blocks, **MINIBATCH)(compile_kwargs)


def with_local_variables(compile_kwargs: dict | None) -> Made:
    with pm.Model() as model:
        x = pm.Data("x", ROWS[:200, 0])
        level = pm.Normal("level")
        each = pm.Normal("each", shape=200)
        pm.Normal("seen", each + level, 1.0, observed=x)
    numbers = {"local_tune": 2, "local_draws": 2, "local_steps": 2}
    step = pg.SGGMC(
        model=model, compile_kwargs=compile_kwargs, local=[each], **MINIBATCH, **numbers
    )
    return model, step


def with_nuts(compile_kwargs: dict | None) -> Made:
    model = mixed()
    with model:
        mine = pg.gSGNHT(["mu", "b"], compile_kwargs=compile_kwargs, **MINIBATCH)
        nuts = pm.NUTS([model["a"], model["s"]], compile_kwargs=compile_kwargs)
    return model, [mine, nuts]


def proportions_with_nuts(compile_kwargs: dict | None) -> Made:
    model = counts()
    with model:
        level = pm.Normal("level")
        pm.Normal("seen", level, 1.0, observed=ROWS[:50, 0])
        mine = pg.SCIR(["p"], compile_kwargs=compile_kwargs, **MINIBATCH)
        nuts = pm.NUTS([level], compile_kwargs=compile_kwargs)
    return model, [mine, nuts]


CASES = {
    "GMC": Case(plain(mixed, pg.GMC)),
    "SubgradientHMC": Case(plain(svm, pg.SubgradientHMC)),
    "SGGMC": Case(plain(mixed, pg.SGGMC, **MINIBATCH)),
    "gSGNHT": Case(plain(mixed, pg.gSGNHT, **MINIBATCH)),
    "SGLD": Case(plain(mixed, pg.SGLD, **MINIBATCH)),
    "SSGLD": Case(minibatches_of_two(pg.SSGLD)),
    "SSGNHT": Case(minibatches_of_two(pg.SSGNHT)),
    "SCIR": Case(plain(counts, pg.SCIR, **MINIBATCH)),
    "SGRLD": Case(plain(counts, pg.SGRLD, **MINIBATCH)),
    "SGGMC, schedule": Case(
        plain(mixed, pg.SGGMC, step_size=pg.PolynomialDecay(0.01, 10.0, 0.3), **MINIBATCH)
    ),
    "SGGMC, random rows": Case(plain(mixed, pg.SGGMC, minibatch_order="random", **MINIBATCH)),
    "SGGMC, second order": Case(plain(mixed, pg.SGGMC, control_variates=2, **MINIBATCH)),
    "SGGMC, all rows": Case(plain(mixed, pg.SGGMC)),
    "SGGMC, batches=": Case(from_disk, needs_step=True),
    "SGGMC, local=": Case(with_local_variables),
    "SGGMC, sparse rows": Case(plain(sparse_rows, pg.SGGMC, **MINIBATCH)),
    "gSGNHT with NUTS": Case(with_nuts, remembers=True),
    "SCIR with NUTS": Case(proportions_with_nuts, remembers=True),
}
