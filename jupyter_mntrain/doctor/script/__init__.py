"""Reading of scripts: what one needs to run, as far as its text tells. Pure; runs nothing."""
