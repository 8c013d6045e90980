"""Panel checks: what a launch checks, made beforehand and shown at the row it belongs to."""
