"""Warnings about jobs that have not failed, but whose numbers may be worthless."""
