"""Project: the files that are sent with a job, as a tree of content hashes."""
