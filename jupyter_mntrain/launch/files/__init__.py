"""Large files: models and data sets by name, split into pieces that are verified by hash."""
