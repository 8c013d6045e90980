"""Copies of checkpoints: on the next node, and on durable storage."""
