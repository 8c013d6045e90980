"""Tables of what is kept on nodes: checkpoints and large files."""
