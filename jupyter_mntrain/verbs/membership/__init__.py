"""Verbs about the members of the cluster: nodes and drivers."""
