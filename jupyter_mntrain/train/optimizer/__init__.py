"""Optimizers: algorithms, precision of weights, and updates fused into the backward pass."""
