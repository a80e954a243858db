"""HTML reports: one file that holds its style and pictures, so that people can keep it and send it around.

A page is a jinja2 template that extends `base.html`, which stands beside this module. Every value is escaped unless it
is `Markup`. jinja2 comes with the extras `chaos` and `spark`; a node needs none of this.
"""

from __future__ import annotations

import os

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_page(template_dir: str, template: str, **values: object) -> str:
    """The page that the template in `template_dir` makes of the values."""
    environment = Environment(
        loader=FileSystemLoader([template_dir, os.path.dirname(__file__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
