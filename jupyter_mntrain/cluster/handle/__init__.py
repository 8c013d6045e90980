"""Parts of :class:`Cluster`'s interface other than its jobs, such as its files and members."""
