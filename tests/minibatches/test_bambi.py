"""Rows of Bambi models."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from pymc_geodesic import SGGMC
from tests.grids import by_default

bambi = pytest.importorskip("bambi", reason="needs Bambi")

# of pandas, for what formulae calls
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")

N = 240
RNG = np.random.default_rng(2)
DATA = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "z": RNG.normal(size=N),
        "group": RNG.integers(6, size=N).astype(str),
        "level": RNG.choice(list("abcd"), size=N),
        "exposure": RNG.uniform(0.5, 2.0, size=N),
        "y": RNG.normal(size=N),
        "success": RNG.integers(2, size=N),
        "count": RNG.poisson(2.0, size=N),
        "positive": RNG.gamma(2.0, size=N),
    }
)
MODELS = {
    "covariates": ("y ~ x + z", {}),
    "group effects": ("y ~ x + (1 + x | group)", {"noncentered": False}),
    "non-centered group effects": ("y ~ x + (1 | group)", {}),
    "categories and interactions": ("success ~ x * z + x:level", {"family": "bernoulli"}),
    "splines and offset": ("count ~ bs(x, df=5) + offset(z)", {"family": "poisson"}),
    "gamma": ("positive ~ x + level", {"family": "gamma", "link": "log"}),
    "Student t": ("y ~ x", {"family": "t"}),
    "several classes": ("level ~ x", {"family": "categorical"}),
    "two predictors": (bambi.Formula("y ~ x", "sigma ~ z"), {}),
}


@pytest.mark.parametrize(
    "name", by_default(["group effects", "splines and offset"], of=list(MODELS))
)
def test_gradient_over_all_minibatches_is_that_of_the_model(name):
    formula, options = MODELS[name]
    built = bambi.Model(formula, DATA, **options)
    built.build()
    model, n = built.backend.model, 40
    step = SGGMC(
        batch_size=n, step_size=0.01, friction=1.0, model=model,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )  # fmt: skip
    assert step.rows.dim == "__obs__"
    estimator = step.estimator
    estimator.reset(0)
    position = RNG.normal(size=step.product.size)
    minibatches, _ = estimator.begin_draw(position, N // n, np.zeros(2, np.uint64), tune=False)
    mean = np.mean([estimator.gradient_at(position, int(each)) for each in minibatches], axis=0)
    values = dict(step.packing.unpack(position))
    exact = model.compile_dlogp([model[each.name] for each in step.variables])(
        model.initial_point() | values
    )
    np.testing.assert_allclose(mean, exact, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_posterior_and_interpretation():
    of_groups = DATA.assign(y=DATA["y"] + DATA["group"].astype(int))  # a scale far from zero
    built = bambi.Model("y ~ x + z + (1 | group)", of_groups, noncentered=False)
    built.build()
    with built.backend.model:
        idata = pm.sample(
            1000, tune=1000, chains=2, cores=1, step=SGGMC(batch_size=60), random_seed=1,
            progressbar=False,
        )  # fmt: skip
    nuts = built.fit(chains=2, cores=1, random_seed=1, progressbar=False)
    for name in ("x", "z", "sigma", "Intercept"):
        draws, expected = idata.posterior[name], nuts.posterior[name]
        assert abs(draws.mean() - expected.mean()) < 0.2 * expected.std()
        assert 0.85 < draws.std() / expected.std() < 1.15
    table = bambi.interpret.comparisons(built, idata, contrast="x").summary
    assert np.allclose(table["estimate"], float(idata.posterior["x"].mean()), atol=1e-6)
