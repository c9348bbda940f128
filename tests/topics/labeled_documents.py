"""Small collections of documents with labels."""

import numpy as np


def corpus(n_documents=60, seed=3):
    """Documents of two classes, with words that depend on the label and uninformative words."""
    rng = np.random.default_rng(seed)
    topics = np.array([[4, 4, 1, 0, 0, 3, 3, 3], [0, 0, 1, 4, 4, 3, 3, 3]]) + 0.05
    labels = rng.integers(2, size=n_documents)
    return np.array([rng.multinomial(30, topics[j] / topics[j].sum()) for j in labels]), labels
