"""Problems of the inner-loop benchmark as NumPy data, for all libraries.

All samplers integrate dx = v dt, dv = ∇log π dt − C v dt + N(0, 2C dt) with the same step size ε
and friction C, from the same start.
"""

from dataclasses import dataclass, field

import numpy as np

SVM_COLUMNS = 28
TOPICS, WORDS, DOCUMENTS = 20, 5000, 2000
TOPIC_CONCENTRATION = 5000.0
CIRCLE_DIRECTIONS = np.array([[np.cos(a), np.sin(a)] for a in (np.pi / 3, -np.pi / 3)])
CIRCLE_WEIGHTS = np.array([1.0, 2.0])
CIRCLE_CONCENTRATION = 5.0


@dataclass(frozen=True)
class Problem:
    """Data and settings of a sampler.

    Attributes
    ----------
    kind : {"svm", "topics", "circle"}
        Log-density.
    title : str
        Line of the table.
    start : ndarray
        Starting position.
    step_size, friction : float
        ε and C.
    batch_size : int
        Rows of a minibatch; 0 without data.
    arrays : dict of str to ndarray
        Data with one row per observation.
    """

    kind: str
    title: str
    start: np.ndarray
    step_size: float
    friction: float
    batch_size: int = 0
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """N; 1 without data."""
        return len(next(iter(self.arrays.values()))) if self.arrays else 1


def svm(n_rows: int, batch_size: int, dtype: str = "float64") -> Problem:
    """Bayesian support vector machine: w ~ N(0, I), log ψ = −max(0, 1 − y x·w)."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=SVM_COLUMNS)
    X = rng.standard_normal((n_rows, SVM_COLUMNS), dtype=np.float32).astype(dtype)
    y = np.where(X @ weights.astype(dtype) + rng.logistic(size=n_rows) > 0, 1.0, -1.0)
    return Problem(
        kind="svm",
        title=f"Bayesian SVM, N = {n_rows:,}, d = {SVM_COLUMNS}, batch {batch_size}",
        start=0.4 * weights,
        step_size=1e-2 / n_rows**0.5,
        friction=50.0 * n_rows**0.5,
        batch_size=batch_size,
        arrays={"X": X, "y": y.astype(dtype)},
    )


def topics(dtype: str = "float64") -> Problem:
    """Spherical admixture: document v_d ~ vMF(βθ_d / ‖βθ_d‖, κ), 20 topics β on S⁴⁹⁹⁹, θ given."""
    rng = np.random.default_rng(2)
    beta = _unit_rows(rng.gamma(0.05, size=(TOPICS, WORDS)))
    theta = rng.dirichlet(np.full(TOPICS, 0.2), size=DOCUMENTS)
    noise = rng.standard_normal((DOCUMENTS, WORDS), dtype=np.float32)
    V = _unit_rows(_unit_rows(theta @ beta) + noise / np.float32(TOPIC_CONCENTRATION**0.5))
    return Problem(
        kind="topics",
        title=f"Topics on spheres, {TOPICS} × {WORDS}, batch 50",
        start=_unit_rows(beta + rng.normal(size=beta.shape) / WORDS**0.5),
        step_size=1e-4,
        friction=1e3,
        batch_size=50,
        arrays={"theta": theta.astype(dtype), "V": V.astype(dtype)},
    )


def circle() -> Problem:
    """Toy of the SGGMC paper, section 5.1: U(x) = −log(exp(5 μ₁·x) + 2 exp(5 μ₂·x)) on S¹."""
    return Problem(
        kind="circle",
        title="Toy on the circle",
        start=np.array([1.0, 0.0]),
        step_size=1e-2,
        friction=10.0,
    )


def _unit_rows(array: np.ndarray) -> np.ndarray:
    return array / np.linalg.norm(array, axis=-1, keepdims=True)
