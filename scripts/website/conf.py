"""Sphinx: its settings for this site. All of its pages are assembled by ``scripts.website``."""

from pathlib import Path

import jupyter_mntrain
from scripts.website.assembly import place
from scripts.website.sections import INDEX, sections

project = "jupyter_mntrain"
author = "The jupyter_mntrain contributors"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx' name
version = release = jupyter_mntrain.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["files"]

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 4  # as code hosts make them: docs/*.md link to headings by them
nb_execution_mode = "off"  # notebooks run by scripts/demo and the tests

autodoc_inherit_docstrings = False  # those of libraries speak of other names
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "jupyter_mntrain"
# Of a section with one page there is nothing to list next to it.
html_sidebars: dict[str, list[str]] = {
    str(place(section.pages[0]).with_suffix("")): []
    for section in sections((Path(__file__).parents[2] / INDEX).read_text())
    if len(section.pages) == 1
}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 10,
    "navbar_align": "left",
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_exclude = ".linenos, .gp, .go"
