"""Checks of the variables that jobs inherit from their agents.

A launch sets those that name interfaces and devices, threads, ranks and addresses itself: whatever
an agent has of them hurts no job, and is not looked at.
"""
