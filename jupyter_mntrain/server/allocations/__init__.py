"""Allocations on the page: launches that wait for nodes, and clusters on granted allocations."""
