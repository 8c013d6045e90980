"""Large files on this node: their roots, transfers, and use of disk space."""
