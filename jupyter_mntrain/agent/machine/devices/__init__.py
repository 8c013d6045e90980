"""Devices: what this node's CPU and GPUs achieve, measured by a Python of its jobs, and kept."""
