"""Records of jobs, nodes and metrics: frozen, and checked where data comes in."""
