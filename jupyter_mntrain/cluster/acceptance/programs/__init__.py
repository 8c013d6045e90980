"""Programs that an acceptance run sends to the nodes as source text."""
