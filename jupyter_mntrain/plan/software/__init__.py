"""Software of nodes: versions, what a job runs in, and whether torch can use their GPUs."""
