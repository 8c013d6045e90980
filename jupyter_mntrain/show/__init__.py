"""Terminal and notebook output: formats, tables, progress bars and a job's picture."""
