"""Records of the doctor: the questions that it asks nodes, and their answers."""
