"""Allocations on the page: the launches that wait for nodes, and the clusters of those granted."""
