"""One attempt on this node: its directory, its keeper, its processes and its output."""
