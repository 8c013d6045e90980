"""Usage of this node, kept for a week whether or not a job runs."""
