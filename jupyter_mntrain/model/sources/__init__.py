"""Sources of nodes: what each is asked for, what it tells, and how it takes nodes back. Pure."""
