"""Predictions of a step before it runs."""
