"""HTTP: what the servers of agent, joining and page have in common, and the calls of agents."""
