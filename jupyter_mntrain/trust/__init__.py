"""Who may talk to whom: a cluster's authority, its certificates, and how a node joins. Pure.

Nothing here opens a socket or a file: agents and drivers do, each for its own part.
"""
