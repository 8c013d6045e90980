"""Terminal and notebook output: formats, tables, progress bars and the picture of a job."""
