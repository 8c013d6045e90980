"""What the doctor needs to know, asked of all nodes at once."""
