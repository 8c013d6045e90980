"""Model: frozen records and pure state transitions. Imports nothing else of mntrain."""
