"""Agents over HTTP: the client, its transport, and diagnosis of distrust."""
