"""Callbacks: recorders for other libraries' training loops; each imports its library."""
