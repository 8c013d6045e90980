"""Admission: admits nodes and drivers to the cluster, and relays revocations."""
