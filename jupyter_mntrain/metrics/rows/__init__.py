"""Rows: tables of the figures of a job, its ranks and its links, for the page."""
