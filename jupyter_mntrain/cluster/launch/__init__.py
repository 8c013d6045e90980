"""Launching on agents, all or nothing, and measuring links between them."""
