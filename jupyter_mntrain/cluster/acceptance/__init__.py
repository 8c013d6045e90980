"""Acceptance run: trains, breaks and measures jobs on a cluster, and observes the results."""
