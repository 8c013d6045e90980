"""The daemon on every node, and the keeper of each attempt. Never imports torch."""
