"""Allocations: options, launches and jobs on nodes that a scheduler grants."""
