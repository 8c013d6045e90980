"""Nodes of a source in the panel: its fields, the form without nodes, and the launch."""
