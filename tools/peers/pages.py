"""The pages, each from the measurements of its own lines."""

from tools.peers import report, report_21


def is_of_21(line):
    return line.startswith("21-")


def write(measurements, docs):
    """Writes those that something was measured for, or that are not there yet; other machines' figures stay. Yields
    their paths."""
    for page, wanted in ((report, lambda line: not is_of_21(line)), (report_21, is_of_21)):
        mine, path = measurements.those_of(wanted), docs / page.NAME
        if mine.records or not path.exists():
            page.write(mine, docs)
            yield path
