def render_report(result, name, left_out):
    return name
