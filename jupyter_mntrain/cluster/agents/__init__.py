"""Agents over HTTP: the client, its transport, and the diagnosis of failed TLS handshakes."""
