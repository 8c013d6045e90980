"""Acceptance, said: a report as text, page and notebook."""
