"""Sources of nodes: requests to schedulers, and their answers. Pure."""
