"""Recipes: their fields, the layers and schedule they imply, and their memory. Imports no torch."""
