"""Workloads: what a job runs (a recipe, script, cell or stored job), and the memory it needs."""
