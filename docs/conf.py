"""Sphinx settings; the build fails on any warning."""

import sys
from pathlib import Path

import numerate

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "numerate"
author = "The numerate developers"
copyright = "2026, the numerate developers"
release = version = numerate.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "sphinx_gallery.gen_gallery"]
html_math_renderer = "mathml"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
suppress_warnings = ["sphinx_gallery.space_in_filename"]  # the scripts have none; the folder of a clone may
exclude_patterns = ["_build", "tutorial_scripts"]
html_theme = "furo"
html_static_path = ["_static"]
html_title = "numerate"
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# The tutorials are scripts in tutorial_scripts; they run when the documentation is built.
sphinx_gallery_conf = {
    "examples_dirs": "tutorial_scripts",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_signature": False,
    "capture_repr": (),
    "copyfile_regex": "",
}
