"""Cluster membership of this node: its id, its addresses, joining, and the systemd unit."""
