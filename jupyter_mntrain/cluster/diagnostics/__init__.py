"""Doctor, benchmark and smoke step: ask all nodes at once for what the checks need."""
