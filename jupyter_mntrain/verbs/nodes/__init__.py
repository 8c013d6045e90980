"""Verbs about nodes: nodes, add, forget, agent, measure."""
