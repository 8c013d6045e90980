"""Changes: where each setting came from, comparison of two runs, and changes of a resumed run."""
