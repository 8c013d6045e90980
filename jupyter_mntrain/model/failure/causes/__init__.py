"""Causes: what one kind of evidence says of a failure, a stall or a slow job. Pure."""
