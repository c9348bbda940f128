"""From a PyMC model to the compiled gradient of its log-density, with inputs for its rows."""
