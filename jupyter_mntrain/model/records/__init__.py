"""Records of jobs, nodes and metrics: frozen, and validated when decoded."""
