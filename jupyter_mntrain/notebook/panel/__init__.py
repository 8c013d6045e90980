"""Submit panel as ipywidgets; imported only where they are installed."""
