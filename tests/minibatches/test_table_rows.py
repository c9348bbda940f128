"""Steps that read rows from a table, with a model of a sample of the table."""

import re
from functools import partial, partialmethod
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pymc.dims as pmd
import pytest

import pymc_geodesic as pg
from pymc_geodesic.datasets import table_blocks

pytest.importorskip("pyarrow")
# of pandas, for what formulae calls
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")

N, SAMPLE = 3000, 600
RNG = np.random.default_rng(4)
GROUPS = np.array(["d", "a", "c", "b", "e"])
TABLE = pd.DataFrame(
    {
        "x": RNG.normal(1.0, 1.0, N),
        "z": RNG.uniform(-1, 1, N),
        "group": RNG.choice(GROUPS, N),
        "number": RNG.integers(6, size=N) + 10,
        "exposure": RNG.uniform(0.5, 2.0, N),
        "count": RNG.poisson(2.0, N),
        "positive": RNG.gamma(2.0, size=N),
        "success": RNG.choice(["no", "yes"], N),
        "trials": RNG.integers(5, 9, N),
    }
)
TABLE["wins"] = RNG.binomial(TABLE["trials"], 0.4)
TABLE["y"] = TABLE["x"] + 0.5 * TABLE["group"].map(ord) - 49 + RNG.normal(size=N)
LIKE = TABLE.head(SAMPLE)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    TABLE.to_parquet(folder / "rows.parquet", row_group_size=500)
    return folder


def regression(data, *, containers=False, like=LIKE):
    """A regression on rows; means and levels are those of the sample."""
    index = pd.Categorical(data["group"], sorted(like["group"].unique())).codes.astype(int)
    x, y = (data["x"] - like["x"].mean()).to_numpy(), data["y"].to_numpy()
    with pm.Model(coords={"group": sorted(like["group"].unique())}) as model:
        if containers:
            x, index, y = pm.Data("x", x), pm.Data("index", index), pm.Data("response", y)
        slope, level = pm.Normal("slope"), pm.Normal("level", dims="group")
        pm.Normal("y", level[index] + slope * x, 1.0, observed=y)
    return model


def assert_gradients_are_those_of_all_rows(step, expected_model):
    """Compare the mean gradient of one epoch with the gradient of a model of all rows."""
    estimator = step.estimator
    position = np.random.default_rng(1).normal(size=step.product.size)
    estimator.reset(0)
    minibatches, _ = estimator.begin_draw(position, N // 50, np.zeros(2, np.uint64), tune=False)
    mean = np.mean([estimator.gradient_at(position, int(each)) for each in minibatches], axis=0)
    point = expected_model.initial_point() | dict(step.packing.unpack(position))
    exact = expected_model.compile_dlogp([expected_model[v.name] for v in step.variables])(point)
    np.testing.assert_allclose(mean, exact, rtol=1e-6, atol=1e-6)


def step_of(model, batches, **arguments):
    return pg.SGGMC(
        batch_size=50, batches=batches, step_size=0.01, friction=1.0, model=model,
        compile_kwargs={"mode": "FAST_COMPILE"}, **arguments,
    )  # fmt: skip


@pytest.mark.parametrize("containers", [False, True])
def test_gradient_is_that_of_all_rows_of_the_table(path, containers):
    step = step_of(
        regression(LIKE, containers=containers), table_blocks(path, like=LIKE, block_size=N)
    )
    assert_gradients_are_those_of_all_rows(step, regression(TABLE))
    assert repr(step.rows).startswith("3,000 rows of y: ")
    assert set(step.rows.origins.values()) == {
        "'y'", f"'x' - {LIKE['x'].mean():.4g}", "the 5 levels of 'group'",
    }  # fmt: skip


def test_data_containers_by_name(path):
    model = regression(LIKE, containers=True)
    blocks = table_blocks(path, like=LIKE, block_size=N, columns={"response": "y"})
    step = step_of(model, blocks, minibatch=["x", "index", "response"])
    assert_gradients_are_those_of_all_rows(step, regression(TABLE))


def test_named_axes(path):
    def model(data):
        coords = {"row": range(len(data)), "group": sorted(LIKE["group"].unique())}
        index = pd.Categorical(data["group"], coords["group"]).codes.astype(int)
        with pm.Model(coords=coords) as built:
            x = pmd.Data("x", data["x"].to_numpy(), dims="row")
            index = pmd.Data("index", index, dims="row")
            slope = pmd.Normal("slope", mu=0, sigma=1)
            level = pmd.Normal("level", mu=0, sigma=1, dims="group")
            mean = level.isel(group=index) + slope * x
            y = pmd.Data("response", data["y"].to_numpy(), dims="row")
            pmd.Normal("y", mu=mean, sigma=1.0, observed=y, dims="row")
        return built

    step = step_of(model(LIKE), table_blocks(path, like=LIKE, block_size=N))
    assert_gradients_are_those_of_all_rows(step, model(TABLE))


def test_models_with_minibatches_of_pymc(path):
    with pm.Model() as model:
        y = pm.Minibatch(LIKE["y"].to_numpy(), batch_size=50)
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=y, total_size=SAMPLE)
    with pytest.raises(ValueError, match=r"Write it without pm\.Minibatch"):
        step_of(model, table_blocks(path, like=LIKE))


@pytest.mark.slow
def test_rows_that_are_sorted_are_reported(tmp_path):
    TABLE.sort_values("x").to_parquet(tmp_path / "rows.parquet")
    model = regression(LIKE, containers=True)
    with model:
        step = pg.SGGMC(batch_size=50, batches=table_blocks(tmp_path, like=LIKE, block_size=300))
        with pytest.warns(UserWarning, match=r"not in random order: the mean of '(x|response)'"):
            pm.sample(
                40, tune=40, chains=1, cores=1, step=step, random_seed=1, progressbar=False,
                compute_convergence_checks=False,
            )  # fmt: skip


def test_pickle_contains_no_rows(path):
    blocks = table_blocks(path, like=LIKE, block_size=N)
    arrays = {"x": LIKE["x"].to_numpy()}
    blocks.for_arrays(arrays)
    pickled = cloudpickle.dumps(blocks)
    assert len(pickled) < 10_000
    (block,) = cloudpickle.loads(pickled).for_arrays(arrays)
    np.testing.assert_array_equal(block["x"], TABLE["x"])
    with pytest.raises(ValueError, match="Make it again"):
        cloudpickle.loads(pickled).for_arrays({"x": LIKE["z"].to_numpy()})


@pytest.mark.parametrize("kind", ["PyMC", "Bambi"])
def test_step_in_another_process(path, kind):
    built = bambi_model("y ~ scale(x) + group", LIKE, {}) if kind == "Bambi" else None
    model = built.backend.model if built else regression(LIKE)
    step = step_of(model, table_blocks(path, like=built or LIKE, block_size=N))
    step = cloudpickle.loads(cloudpickle.dumps(step))
    assert step.rows.n_rows == N


BAMBI = {
    "covariates": ("y ~ x + z", {}),
    "groups": ("y ~ x + (1 + x | group)", {"noncentered": False}),
    "groups that are integers": ("y ~ x + (1 | number)", {"noncentered": False}),
    "combined groups": ("y ~ x + (1 | group:number)", {"noncentered": False}),
    "interactions": ("success ~ x * z + x:group", {"family": "bernoulli"}),
    "spline and offset": ("count ~ bs(x, df=5) + offset(z)", {"family": "poisson"}),
    "transforms": ("positive ~ scale(x) + np.exp(z) + group", {"family": "gamma", "link": "log"}),
    "factor in two terms": ("y ~ group + (0 + group | number)", {"noncentered": False}),
    "trials": ("p(wins, trials) ~ x", {"family": "binomial"}),
    "classes": ("group ~ x", {"family": "categorical"}),
    "two predictors": ("y ~ x", {"sigma": "sigma ~ z"}),
}  # fmt: skip


def bambi_model(formula, data, options):
    bambi = pytest.importorskip("bambi", reason="needs Bambi")
    options = dict(options)
    if "sigma" in options:
        formula = bambi.Formula(formula, options.pop("sigma"))
    built = bambi.Model(formula, data, auto_scale=False, **options)
    built.build()
    return built


@pytest.mark.parametrize("kind", list(BAMBI))
def test_models_of_bambi(path, kind, tmp_path):
    """A table of the rows of the sample has the arrays that Bambi has built."""
    built = bambi_model(BAMBI[kind][0], LIKE, BAMBI[kind][1])
    step = step_of(built.backend.model, table_blocks(path, like=built, block_size=1000))
    assert step.rows.n_rows == N
    LIKE.to_parquet(tmp_path / "sample.parquet")
    arrays = {name: step.model[name].get_value() for name in step.rows.origins}
    blocks = table_blocks(tmp_path, like=built)
    blocks.for_arrays(arrays)
    (block,) = cloudpickle.loads(cloudpickle.dumps(blocks)).for_arrays(arrays)
    for name, array in arrays.items():
        np.testing.assert_allclose(block[name], array, atol=1e-9)


def test_bambi_model_on_its_data_frame_alone(path):
    built = bambi_model("y ~ x + z + (1 | group)", LIKE, {"noncentered": False})
    step = step_of(built.backend.model, table_blocks(path, like=LIKE, block_size=N))
    expected = step_of(built.backend.model, table_blocks(path, like=built, block_size=N))
    assert step.rows.origins == expected.rows.origins
    assert "the 5 levels of 'group'" in step.rows.origins.values()


def test_unsupported_terms_of_bambi(path):
    built = bambi_model("y ~ hsgp(x, m=5, c=1.5)", LIKE, {})
    with pytest.raises(ValueError, match=r"column 0 of 'constant 1' does not follow .* function"):
        step_of(built.backend.model, table_blocks(path, like=built))
    built = bambi_model("y ~ x * z", LIKE, {})
    with pytest.raises(ValueError, match=r"column 2 of .* or pass the bambi\.Model as like="):
        step_of(built.backend.model, table_blocks(path, like=LIKE))
    built = bambi_model("y ~ I(x - np.mean(x)) + z", LIKE, {})
    with pytest.raises(ValueError, match=r"depends on other rows: .*center\(x\)"):
        step_of(built.backend.model, table_blocks(path, like=built))
    few = LIKE[LIKE["number"] < 15]
    built = bambi_model("y ~ x + C(number)", few, {})
    with pytest.raises(ValueError, match=r"cannot evaluate 'C\(number\)' .* levels \(15\).*Build"):
        step_of(built.backend.model, table_blocks(path, like=built, block_size=N))


def test_levels_unknown_to_bambi(tmp_path):
    TABLE.assign(group=TABLE["group"].where(TABLE.index != 2500, "f")).to_parquet(
        tmp_path / "0.parquet"
    )
    for formula in ("y ~ x + group", "y ~ x + (1 | group)"):
        built = bambi_model(formula, LIKE, {"noncentered": False})
        with pytest.raises(ValueError, match=r"Column 'group' has 'f' in row 2500 of .*head\(20\)"):
            step_of(built.backend.model, table_blocks(tmp_path, like=built))


@pytest.mark.slow
def test_program_of_the_documentation(tmp_path, monkeypatch):
    bambi = pytest.importorskip("bambi", reason="needs Bambi")
    page = Path(__file__).parents[2] / "docs" / "any_model.md"
    (program,) = re.findall(r"^```python\n(from .*?)```", page.read_text(), re.DOTALL | re.M)
    monkeypatch.chdir(tmp_path)
    few = {"draws": 10, "tune": 10, "chains": 1, "random_seed": 1, "progressbar": False}
    monkeypatch.setattr(bambi.Model, "fit", partialmethod(bambi.Model.fit, **few))
    monkeypatch.setattr(pm, "sample", partial(pm.sample, compute_convergence_checks=False))
    names = {"__name__": "program"}
    exec(program, names)
    assert repr(names["step"].rows) in page.read_text()
    assert names["idata"].posterior["age"].sizes["draw"] == 10


@pytest.mark.slow
def test_posterior_is_that_of_all_rows_in_memory(path):
    draws = []
    for data, options in [(LIKE, {"batches": table_blocks(path, like=LIKE)}), (TABLE, {})]:
        with regression(data):
            step = pg.SGGMC(batch_size=20, **options)
            idata = pm.sample(
                2000, tune=1000, chains=2, cores=1, step=step, random_seed=1, progressbar=False
            )
        draws.append(idata.posterior)
    streamed, expected = draws
    for name in ("slope", "level"):
        mean, sd = (getattr(expected[name], each)(("chain", "draw")) for each in ("mean", "std"))
        assert (abs(streamed[name].mean(("chain", "draw")) - mean) < 0.1 * sd).all()
        assert (abs(streamed[name].std(("chain", "draw")) / sd - 1) < 0.1).all()
