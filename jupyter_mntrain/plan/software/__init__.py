"""Software of nodes: checks versions, interpreters, and whether torch can use the GPUs."""
