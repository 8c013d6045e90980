"""Admission: letting nodes and drivers into the cluster, and telling members who was revoked."""
