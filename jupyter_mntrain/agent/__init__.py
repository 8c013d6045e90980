"""The daemon on every node, and the supervisor of each attempt. Never imports torch."""
