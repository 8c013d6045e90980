"""Recipes: their fields, the layout and schedule they imply, and their memory. Imports no torch."""
