"""Callbacks: record other libraries' training loops; each module imports its library."""
