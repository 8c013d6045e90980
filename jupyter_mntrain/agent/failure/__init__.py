"""Failure evidence on this node: exit codes, logs, stacks and stalls, read into a cause."""
