"""Diagnosis: finds out from the evidence of all parts why a job fails or stalls. Pure."""
