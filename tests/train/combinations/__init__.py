"""Real chat templates, tokenizers and masks, trained here and by transformers alone."""
