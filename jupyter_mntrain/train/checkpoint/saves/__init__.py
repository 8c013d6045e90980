"""Saves: when one is due, and how it is written in the background."""
