"""A job's samples on this node: every line of them, and all of them downsampled."""
