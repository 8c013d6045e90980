"""Slowness: measures a part's speed, now and before, and what slows it down."""
