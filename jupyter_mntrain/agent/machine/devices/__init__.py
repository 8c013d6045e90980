"""Devices: measures what this node's CPU and GPUs achieve in the jobs' Python, and stores it."""
