"""Sources of minibatches: from data to the first row of the next minibatch."""
