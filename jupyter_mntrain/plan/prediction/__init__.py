"""Prediction: estimates a step's time before it runs."""
