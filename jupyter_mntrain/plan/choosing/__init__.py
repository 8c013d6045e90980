"""Choosing: decides how a job is split, ordered and scheduled, by predicting its steps."""
