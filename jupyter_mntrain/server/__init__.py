"""The Jupyter server's part: one watcher of the cluster for every open page."""
