"""Workloads: what a job runs (a recipe, a script, a cell or a stored job), and its memory."""
