"""Verbs about existing jobs: jobs, status, attach, plot, logs, stacks."""
