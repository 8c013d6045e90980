"""Failure evidence: turns this node's exit codes, logs, stacks and stalls into a problem."""
