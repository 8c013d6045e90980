"""Answering: models that continue a text, talk, or are served, beside a job or after it."""
