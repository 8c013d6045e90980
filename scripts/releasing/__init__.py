"""Releasing: what a release consists of, and the checks that it must pass."""
