"""Sources of nodes: schedulers, which grant nodes beyond the machines that were joined by hand."""
