"""Submit panel without widgets: choices, checks, last choices, and the panel as text."""
