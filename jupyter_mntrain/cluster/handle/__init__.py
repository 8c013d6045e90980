"""What a cluster hands out besides its jobs: each is a part of :class:`Cluster`'s interface."""
