"""A job's samples on this node: every one in the journal, and all of them downsampled."""
