"""Ranks: their table, groups of many of them, and what they do before their steps."""
