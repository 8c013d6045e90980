"""Parts of the panel, each with its own widgets: nodes of a source, files, doctor, prediction."""
