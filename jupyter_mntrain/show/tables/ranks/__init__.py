"""Ranks: their table, groups of many ranks, and what they do before their first step."""
