"""One attempt on this node: its directory, its supervisor, its processes and its output."""
