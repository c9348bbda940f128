"""Variance reduction by control variates for the counts of SCIR.

Documents of two topics with known proportions; the topics are sampled by minibatches.
By corollary 3.2 of the SCIR paper, the noise of the counts adds tanh(h/2) Var[â] to the
variance of each gamma variable, for independent minibatches. The script prints, by size of the
minibatch and with and without control variates, Var[â] / a summed over the components (of the part
of the noise that moves the topics, not the sums of their gamma variables), the inflation of the
variance that the corollary predicts, and the observed one: the variance of the components in a long
chain divided by that in a chain with all documents at the same step size, minus one.

Run it with ``python examples/count_control_variates.py``; it takes some two minutes.
"""

import argparse
import logging

import numpy as np
import pymc as pm
from script_parts import parse_options

import pymc_geodesic as pg

DOCUMENTS, WORDS, LENGTH = 1000, 12, 30
STEP_SIZE, BATCHES = 0.05, (10, 50, 200)
SEED = 3


def build_model() -> pm.Model:
    """Return the model, with the documents in the containers ``counts`` and ``weights``."""
    rng = np.random.default_rng(SEED)
    topics = rng.dirichlet(np.ones(WORDS), 2)
    share = rng.beta(0.5, 0.5, DOCUMENTS)
    weights = np.column_stack([share, 1.0 - share])
    counts = rng.multinomial(LENGTH, weights @ topics)
    with pm.Model() as model:
        words, proportions = pm.Data("counts", counts), pm.Data("weights", weights)
        topic = pm.Dirichlet("topic", np.ones(WORDS), shape=(2, WORDS))
        p = pm.math.dot(proportions, topic)
        pm.Multinomial("y", n=LENGTH, p=p / p.sum(axis=-1, keepdims=True), observed=words)
    return model


def run(model: pm.Model, draws: int, **options: object) -> tuple[np.ndarray, float, float]:
    """Return the variance of each component, Var[â] / a and the predicted inflation."""
    with model:
        step = pg.SCIR(step_size=STEP_SIZE, n_steps=20, **options)
        idata = pm.sample(
            draws=draws, tune=200, chains=1, cores=1, step=step, random_seed=SEED,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    inflation = float(idata.sample_stats["variance_inflation"][0, -1])
    variance = idata.posterior["topic"].values[0].var(axis=0)
    return variance, inflation / np.tanh(0.5 * STEP_SIZE), inflation


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000)
    options = parse_options(parser, draws=200)
    logging.getLogger("pymc").setLevel(logging.ERROR)
    model = build_model()
    exact, _, _ = run(model, options.draws)
    print(f"h = {STEP_SIZE}, {DOCUMENTS} documents, {options.draws} draws of 20 steps")
    print("| documents in a minibatch | control variates | Var[â] / a | predicted | observed |")
    print("|---|---|---|---|---|")
    for batch_size in BATCHES:
        for control_variates in (False, True):
            variance, noise, predicted = run(
                model,
                options.draws,
                batch_size=batch_size,
                minibatch=["counts", "weights"],
                minibatch_order="independent",
                control_variates=control_variates,
            )
            seen = variance.sum() / exact.sum() - 1.0
            print(
                f"| {batch_size} | {'yes' if control_variates else 'no'} | {noise:.3g} "
                f"| {100 * predicted:.2g} % | {100 * seen:.2g} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
