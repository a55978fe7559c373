# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sphinx's settings for the site that `make docs` builds."""

from __future__ import annotations

project = "tether.fleet"
copyright = "tether.fleet contributors"  # noqa: A001 - sphinx's name
html_title = "tether.fleet"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
# The dialect of the examples: YAML with Jinja in it.
highlight_language = "YAML+Jinja"
# Links to headings, as code forges make them.
myst_heading_anchors = 4
# What ansible-core and other collections document. Their sites are not asked for what they hold, so
# that the build needs no network.
nitpick_ignore_regex = [
    ("std:ref", r"ansible_collections\.(ansible|community|kubernetes)\..*"),
    ("std:ref", r"(action|callback|filter)_plugins|common_return_values"),
    ("std:ref", r"ansible_configuration_settings"),
    ("std:envvar", r".*"),
]
