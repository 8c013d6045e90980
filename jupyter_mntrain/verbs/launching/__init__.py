"""Verbs that start jobs: launch, export, recipes; in answering, chat and the like."""
