"""Trust: a cluster's authority, its certificates, and how nodes and drivers join.

Nothing here opens a socket: agents and drivers do, each for its own part. Files are the two that
:class:`~jupyter_mntrain.trust.credentials.Credentials` keeps for either.
"""
