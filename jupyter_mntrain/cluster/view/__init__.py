"""The live view of a cluster: one watch per agent, merged into nodes and jobs."""
