"""What the page says if the traces have no rows: what to check, in the order of likelihood."""

from spark.report.drawing.markup import element
from spark.report.drawing.text import plural
from spark.report.model import Report
from spark.report.sections.section import Section, lead


def empty(report: Report) -> Section:
    """A section in place of all others."""
    source = report.source
    read = len(source.skipped) + source.files
    found = "No file of traces was found." if read == 0 else f"{plural(read, 'file')} found."
    checks = [
        element(
            "li",
            element("strong", "The path. "),
            "API processes write traces of requests to ",
            element("code", "<data-dir>/traces/requests/"),
            ". The path is the data folder, this folder, or a file in it.",
        ),
        element(
            "li",
            element("strong", "Complete files. "),
            "A file is complete after five minutes, 500,000 rows or 64 MiB; until then its name"
            " begins with a dot and it is not read. Wait, or stop the service: it completes its"
            " files.",
        ),
        element(
            "li",
            element("strong", "Requests. "),
            "Only subscribe, unsubscribe, advertise, unadvertise and update leave rows. Published"
            " events do not.",
        ),
        element(
            "li",
            element("strong", "The time. "),
            "With ",
            element("code", "--since"),
            " or ",
            element("code", "--until"),
            ", only requests that arrived in this time count. Times without a zone are UTC.",
        ),
        element(
            "li",
            element("strong", "Dropped rows. "),
            "If the disk was full or slow, rows were dropped and counted in ",
            element("code", "dzflow_trace_rows_dropped_total"),
            "; the oldest files are deleted if all take more than ",
            element("code", "limits.traces"),
            " bytes.",
        ),
    ]
    text = lead("The traces have no rows, so there is nothing to show. ", found, " Check:")
    return Section("empty", "No requests", [text, element("ol", *checks, class_="checks")])
