"""Verbs that start jobs: launch, dry-run, export, recipes; in answering, chat and the like."""
