"""Frozen records and pure state changes. Imports nothing of ours."""
