"""Files on nodes: models and data sets brought there, and checkpoints of runs."""
