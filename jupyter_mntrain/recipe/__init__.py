"""Recipes without torch: what one says, which layers and schedule it means, and its memory."""
