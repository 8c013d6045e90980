"""HTTP to the agents: one client, one transport, and why a connection was not trusted."""
