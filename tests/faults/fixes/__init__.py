"""Fixes tried: each fault is produced, what its fix says is done, and the job succeeds."""
