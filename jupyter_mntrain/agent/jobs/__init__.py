"""The jobs this node takes part in: records, journals, leases."""
