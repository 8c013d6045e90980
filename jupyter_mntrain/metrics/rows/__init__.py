"""Rows: the figures of the job, its ranks and its links as a table of numbers, for the page."""
