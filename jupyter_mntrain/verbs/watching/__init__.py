"""Verbs about jobs that exist: jobs, status, attach, plot, logs, stacks, save, stop, kill."""
