"""Trust: a cluster's certificate authority, its certificates, and how nodes and drivers join."""
