"""Workloads: what a job runs (a recipe, a script, a cell or a stored job), and the memory it
needs.
"""
