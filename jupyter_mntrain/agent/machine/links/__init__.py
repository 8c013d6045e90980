"""Links: measures their capacity and the time of a message, and what disturbed the measurement."""
