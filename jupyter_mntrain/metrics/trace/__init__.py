"""Recorded steps: what all ranks traced of one step, on one time line."""
