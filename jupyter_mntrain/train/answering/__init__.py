"""Answering: models that continue a text, chat, or are served, during a job or after it."""
