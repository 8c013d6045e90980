"""Devices: what a recipe leaves to the GPUs of its job, and what these cannot do."""
