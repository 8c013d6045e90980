"""Project: the files that a job brings along, as a tree of content hashes."""
