"""A number of rows that is not that of the data scales the posterior without any other sign."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg

INTERPRETED = {"mode": "FAST_COMPILE"}
ROWS = np.linspace(-1.0, 1.0, 40)


def drawn(total_size):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=pm.Minibatch(ROWS, batch_size=5),
                  total_size=total_size)  # fmt: skip
    return model


def named(total_size):
    with pm.Model() as model:
        rows = pm.Data("rows", ROWS)
        pm.Normal("y", pm.Normal("a"), observed=rows, total_size=total_size)
    return model


ROUTES = [(drawn, {}), (named, {"minibatch": ["rows"], "batch_size": 5})]


@pytest.mark.parametrize(("route", "minibatches"), ROUTES)
@pytest.mark.parametrize(("total_size", "how"), [(400, "narrower"), (5, "wider")])
def test_another_number_of_rows_is_named(route, minibatches, total_size, how):
    expected = rf"total_size={total_size} of 'y' is not the 40 rows.*{how}.*total_size=40"
    with route(total_size), pytest.warns(UserWarning, match=expected):
        pg.SGGMC(compile_kwargs=INTERPRETED, **minibatches)


@pytest.mark.parametrize(("route", "minibatches"), ROUTES)
def test_the_number_of_rows_is_right(route, minibatches):
    with route(40), warnings.catch_warnings():
        warnings.simplefilter("error")
        pg.SGGMC(compile_kwargs=INTERPRETED, **minibatches)


def test_rows_that_are_streamed_are_counted_by_the_step():
    blocks = [(ROWS[:20],), (ROWS[20:],)]
    arguments = {"minibatch": ["rows"], "batches": blocks, "batch_size": 5}
    with named(80):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pg.SGGMC(compile_kwargs=INTERPRETED, total_size=80, **arguments)
        with pytest.warns(UserWarning, match="total_size=80 of 'y' is not the 40 rows"):
            pg.SGGMC(compile_kwargs=INTERPRETED, total_size=40, **arguments)


def test_fewer_rows_in_all_than_in_memory_are_refused():
    with pm.Model():
        rows = pm.Data("rows", np.zeros(40))
        pm.Normal("y", pm.Normal("a"), observed=rows)
        with pytest.raises(ValueError, match="total_size=10 is less than the 40 rows of 'rows'"):
            pg.SGGMC(minibatch="rows", batch_size=5, total_size=10, compile_kwargs=INTERPRETED)


@pytest.mark.parametrize("large", [-1e200, 1e160])
def test_numbers_whose_squares_are_infinite_are_named(large):
    numbers = np.zeros(40)
    numbers[3] = large
    with pm.Model():
        rows = pm.Data("rows", numbers)
        pm.Normal("y", pm.Normal("a"), observed=rows)
        with pytest.raises(ValueError, match=r"'rows' holds 1e\+\d+, whose square overflows"):
            pg.SGGMC(minibatch="rows", batch_size=5, compile_kwargs=INTERPRETED)
