"""Tables of what nodes store: checkpoints and large files."""
