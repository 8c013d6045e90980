"""Acceptance: what an acceptance run observed on a cluster, and what that proves. Pure."""
