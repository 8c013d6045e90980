"""Verbs that start jobs: launch, export, recipes; chat and others are in ``answering``."""
