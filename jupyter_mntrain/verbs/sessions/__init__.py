"""Verbs about sessions: ranks that stay on the nodes, and run cells."""
