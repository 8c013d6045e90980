"""Programs that jobs of an acceptance run send to the nodes, as text."""
