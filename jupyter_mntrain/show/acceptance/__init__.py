"""Acceptance reports as text, HTML page and notebook."""
