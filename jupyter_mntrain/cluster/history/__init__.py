"""Journals and logs of a job, followed on every participant."""
