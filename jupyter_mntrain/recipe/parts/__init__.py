"""Parts of a recipe: sections that have modules of their own."""
