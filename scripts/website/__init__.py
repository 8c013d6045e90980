"""Website: the pages of this repository, and a reference made of its code, as one site."""
