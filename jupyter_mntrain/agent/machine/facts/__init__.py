"""What the doctor asks of this machine. Only reads; each file reads one thing."""
