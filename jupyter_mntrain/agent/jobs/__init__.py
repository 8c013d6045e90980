"""The jobs that this node takes part in: records, journals, leases."""
