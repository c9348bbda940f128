"""Expected counts of Dirichlet and Gamma variables, for SCIR and SGRLD."""
