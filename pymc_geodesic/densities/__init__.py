"""Log-density of a PyMC model: variables, terms, rows, checks, and compilation of gradients."""
