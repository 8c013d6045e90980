"""What a cluster hands out beside its jobs: each is a part of :class:`Cluster`'s interface."""
