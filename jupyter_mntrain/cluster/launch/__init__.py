"""Launching through agents, and measuring the links between them."""
