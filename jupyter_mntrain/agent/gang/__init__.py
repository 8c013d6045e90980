"""Gang of an attempt: its nodes start, end and restart together, and try their links."""
