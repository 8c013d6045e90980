"""Slowness."""
