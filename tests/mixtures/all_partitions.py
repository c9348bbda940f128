"""The exact posterior of a Dirichlet-process mixture of five rows: all 52 partitions of them."""

import numpy as np
from scipy.integrate import quad
from scipy.special import gammaln

COUNTS = np.array([[3, 0, 0], [2, 1, 0], [0, 0, 2], [0, 1, 2], [1, 1, 1]])
NEW = np.array([[1, 0, 0], [2, 0, 1], [0, 0, 3], [0, 0, 0]])
BETA = np.array([0.5, 0.3, 0.8])
PRIOR = (1.5, 0.8)
QUIET = {"random_seed": 1, "progressbar": False}


def partitions(n):
    """All partitions of n things, blocks numbered in order of appearance."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*p, k] for p in found for k in range(max(p) + 2)]
    return np.array(found)


def canonical(assignments):
    """Numbers of blocks in order of appearance."""
    first = {}
    return tuple(first.setdefault(int(k), len(first)) for k in assignments)


def log_marginal(counts):
    """Log-probability of tokens in one cluster."""
    value = gammaln(BETA.sum()) - gammaln(BETA.sum() + counts.sum())
    return value + np.sum(gammaln(BETA + counts) - gammaln(BETA))


class Enumeration:
    """The exact posterior of the partition of `COUNTS`, of α and of new rows."""

    def __init__(self, prior):
        self.partitions = partitions(len(COUNTS))
        n = len(COUNTS)
        log_p, self.alpha, new = [], [], []
        for partition in self.partitions:
            n_clusters = partition.max() + 1
            blocks = [partition == k for k in range(n_clusters)]
            sizes = np.array([block.sum() for block in blocks])
            inside = [COUNTS[block].sum(axis=0) for block in blocks]
            value = np.sum(gammaln(sizes)) + sum(map(log_marginal, inside))
            moments = [self.moment(prior, n_clusters, power) for power in (0, 1)]
            log_p.append(value + np.log(moments[0]))
            self.alpha.append(moments[1] / moments[0])
            new.append([self.predict(prior, sizes, inside, row) for row in NEW])
        p = np.exp(np.array(log_p) - max(log_p))
        self.p = p / p.sum()
        assert len(p) == 52 or n != 5  # Bell's number
        self.alpha = self.p @ np.array(self.alpha)
        self.predictive = self.p @ np.array(new)
        self.n_clusters = np.array([self.p @ (self.partitions.max(axis=1) + 1 == k)
                                    for k in range(1, n + 1)])  # fmt: skip

    @staticmethod
    def moment(prior, n_clusters, power, further=lambda _: 1.0):
        """∫ α^power · further(α) · α^K Γ(α) / Γ(α + n) p(α) dα, up to a constant."""

        def weight(alpha):
            return np.exp(
                n_clusters * np.log(alpha) + gammaln(alpha) - gammaln(alpha + len(COUNTS))
            )

        if np.ndim(prior) == 0:
            return weight(prior) * prior**power * further(prior)
        shape, rate = prior
        return quad(
            lambda a: a ** (shape - 1 + power) * np.exp(-rate * a) * weight(a) * further(a),
            0, 60, epsabs=0, epsrel=1e-8, limit=200,
        )[0]  # fmt: skip

    def predict(self, prior, sizes, inside, row):
        """Probability of a new row given a partition, α integrated out."""
        n, n_clusters = sizes.sum(), len(sizes)
        old = sum(
            size * np.exp(log_marginal(counts + row) - log_marginal(counts))
            for size, counts in zip(sizes, inside, strict=True)
        )
        total = self.moment(prior, n_clusters, 0, lambda a: old / (a + n))
        total += self.moment(
            prior, n_clusters, 0, lambda a: a / (a + n) * np.exp(log_marginal(row))
        )
        return total / self.moment(prior, n_clusters, 0)

    def indices(self, assignments):
        """Number of the partition of each draw."""
        indices = {canonical(p): i for i, p in enumerate(self.partitions)}
        return np.array([indices[canonical(a)] for a in assignments])

    def z_scores(self, assignments):
        """Deviations of the frequencies of partitions, as if draws were independent."""
        found = self.indices(assignments)
        seen = np.bincount(found, minlength=len(self.partitions))
        n = len(assignments)
        return (seen - n * self.p) / np.sqrt(n * self.p * (1 - self.p))


def by_batches(values, expected, n_batches=40):
    """Deviation of a mean from its expectation, in standard errors from batches."""
    batches = np.array([part.mean(axis=0) for part in np.array_split(values, n_batches)])
    return (batches.mean(axis=0) - expected) / (batches.std(axis=0, ddof=1) / np.sqrt(n_batches))


def run(chain, n, thin):
    """Partitions and α of a chain."""
    found, alpha = np.empty((n, len(COUNTS)), dtype=int), np.empty(n)
    for i in range(n):
        for _ in range(thin):
            chain.advance()
        found[i], alpha[i] = chain.assignments, chain.alpha
    return found, alpha
