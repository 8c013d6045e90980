"""The submit panel as ipywidgets. Imported only where they are installed."""
