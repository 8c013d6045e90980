"""What this machine's owner lends to the cluster, and when."""
