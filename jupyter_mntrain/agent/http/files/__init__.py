"""Routes of files: those of projects, and large ones."""
