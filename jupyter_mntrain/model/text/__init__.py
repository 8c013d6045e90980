"""Text: near spellings, and what others wrote."""
