"""Rulers: every figure against a truth that is counted apart from it; docs/figures.md."""
