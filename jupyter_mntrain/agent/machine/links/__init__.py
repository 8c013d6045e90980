"""Links: what they carry, how long a message takes, and what disturbed the measurement."""
