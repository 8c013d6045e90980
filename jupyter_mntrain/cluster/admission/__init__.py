"""Admission: lets nodes and drivers into the cluster, and tells members who was revoked."""
