"""Verbs that start jobs: launch, dry-run, export, recipes, generate."""
