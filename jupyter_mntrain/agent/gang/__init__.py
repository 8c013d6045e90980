"""Gang of an attempt: starts, ends and restarts its nodes together, and tries their links."""
