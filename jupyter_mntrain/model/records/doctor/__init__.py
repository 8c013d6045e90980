"""What the doctor asks of nodes, and what they answer."""
