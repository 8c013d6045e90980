"""Large files: models and data sets by name, cut into pieces that are checked by their hash."""
