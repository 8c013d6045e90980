"""Checkpoints: writing, finding, copying and loading them, and exporting the model."""
