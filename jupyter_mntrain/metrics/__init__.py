"""Metrics of a job: journals in, one record of series and summary out. Pure."""
