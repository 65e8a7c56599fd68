"""Sphinx settings; the build fails on any warning."""

import numerate

project = "numerate"
author = "The numerate developers"
copyright = "2026, the numerate developers"
release = version = numerate.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.intersphinx"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_title = "numerate"
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
intersphinx_mapping = {}
