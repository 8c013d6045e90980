"""Verbs about who belongs to the cluster: nodes and drivers."""
