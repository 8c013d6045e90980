"""Jupyter server extension: one watcher of the cluster for every open page."""
