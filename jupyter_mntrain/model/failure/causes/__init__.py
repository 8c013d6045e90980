"""Causes: each looks at one kind of evidence for a failure, a stall or a slow job. Pure."""
