"""HTTP: what the servers of the agent, of joining and of the page share, and calls to agents."""
