"""Preflight: the doctor checks the nodes of a launch before anything is leased."""
