"""From data to the first row of the next minibatch, without a density."""
