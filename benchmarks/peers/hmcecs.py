"""HMC with energy-conserving subsampling of NumPyro on a logistic regression in a file.

``python hmcecs.py rows.npz n_subsample n_warmup n_draws`` prints one line of JSON. It runs in an
environment of its own; `benchmarks/many_rows.py` calls it with whitened rows, without which the
sampler does not move.
"""

import json
import sys
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import HMCECS, MCMC, NUTS


def main() -> None:
    """Sample, and print the effective size, the times and the moments."""
    path, n_subsample, n_warmup, n_draws = sys.argv[1], *map(int, sys.argv[2:5])
    with np.load(path) as stored:
        X, y, mode = jnp.asarray(stored["X"]), jnp.asarray(stored["y"]), stored["mode"]

    def model(X, y, n_subsample):
        b = numpyro.sample("b", dist.Normal(0.0, 1e3).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("rows", X.shape[0], subsample_size=n_subsample):
            rows = numpyro.subsample(X, event_dim=1)
            outcome = numpyro.subsample(y, event_dim=0)
            numpyro.sample("outcome", dist.Bernoulli(logits=rows @ b), obs=outcome)

    start = {"b": jnp.asarray(mode)}
    proxy = HMCECS.taylor_proxy(start)
    kernel = HMCECS(
        NUTS(model, init_strategy=numpyro.infer.init_to_value(values=start), dense_mass=True),
        num_blocks=100,
        proxy=proxy,
    )
    mcmc = MCMC(kernel, num_warmup=n_warmup, num_samples=n_draws, progress_bar=False)
    began = time.process_time()
    mcmc.warmup(jax.random.PRNGKey(0), X, y, n_subsample)
    warm = time.process_time()
    mcmc.run(jax.random.PRNGKey(1), X, y, n_subsample)
    done = time.process_time()
    draws = np.asarray(mcmc.get_samples(group_by_chain=True)["b"])
    size = float(np.min(effective_sample_size(draws)))
    print(
        json.dumps(
            {
                "ess": size,
                "warmup_s": warm - began,
                "draws_s": done - warm,
                "ess_per_s": size / (done - warm),
                "mean": draws.mean(axis=(0, 1)).tolist(),
                "sd": draws.std(axis=(0, 1)).tolist(),
            }
        )
    )


if __name__ == "__main__":
    main()
