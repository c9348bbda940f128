"""Iterations and arguments shared by the models with their own samplers."""

import numpy as np
import pytest

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.runtime.iterations import draw_after, each_chain


@pytest.mark.parametrize("value", [0.5, 0, np.nan, np.inf, "3", None, True, [3]])
def test_invalid_numbers_raise(value):
    with pytest.raises(ValueError, match="draws must be an integer of at least 1"):
        check_integers(tune=(0, 0), draws=(value, 1))


@pytest.mark.parametrize("value", [1, 3.0, np.int32(2), np.array(2)])
def test_valid_numbers_are_accepted(value):
    check_integers(draws=(value, 1))


def test_each_chain_has_its_own_generator():
    chains = [
        (chain, rng.random(), list(iterations))
        for chain, rng, iterations in each_chain(1, 3, 2, progressbar=False)
    ]
    assert [chain for chain, _, _ in chains] == [0, 1, 2]
    assert len({number for _, number, _ in chains}) == 3
    again = [rng.random() for _, rng, _ in each_chain(1, 3, 2, progressbar=False)]
    assert again == [number for _, number, _ in chains]
    assert all(iterations == [0, 1] for _, _, iterations in chains)


@pytest.mark.parametrize(("tune", "thin", "draws"), [(0, 1, 5), (3, 1, 4), (2, 3, 4)])
def test_saved_draws(tune, thin, draws):
    kept = [draw_after(iteration, tune, thin) for iteration in range(tune + draws * thin)]
    assert [draw for draw in kept if draw is not None] == list(range(draws))
    assert kept[-1] == draws - 1
