"""Parts of the panel with their own widgets: nodes of a source, files, doctor, prediction."""
