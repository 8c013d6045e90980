"""Changes: settings with where each came from, of two runs side by side, of a resumed run."""
