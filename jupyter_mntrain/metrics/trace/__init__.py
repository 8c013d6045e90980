"""Recorded steps: what all ranks traced of one step, on a common time line."""
