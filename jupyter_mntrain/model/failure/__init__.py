"""Diagnosis: what evidence from all parts of a job says about why it fails or stalls. Pure."""
