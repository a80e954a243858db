"""The HTML reports of jobs: charts, and a jinja2 page around them."""
