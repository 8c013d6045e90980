"""Chooses how a job is split, ordered and scheduled, by predicting steps."""
