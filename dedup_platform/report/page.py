"""The report as a page: one file, without scripts and without anything that it would have to load."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from dedup_platform.platform.figures import total
from dedup_platform.report import sections
from dedup_platform.report.elements import document, element
from dedup_platform.report.gathering import Report

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load for the page, should anything in it ask for more: nothing."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 960px; margin: 2em auto; padding: 0 1em }
h2 { margin: 2em 0 .3em; border-bottom: 1px solid #d5dde5 } h3 { margin: 1.2em 0 .2em; font-size: 1em }
table { border-collapse: collapse; margin: .6em 0 } th, td { padding: .15em .8em .15em 0; text-align: right }
th { text-align: left; font-weight: normal; overflow-wrap: anywhere } thead th { font-weight: bold }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: #5b6b7b }
.left { text-anchor: end } .below { text-anchor: middle }
.axis { fill: none; stroke: #9fb0c0 } .mark { stroke: #d1495b; stroke-dasharray: 3 3 }
.curve { fill: none; stroke: #2b6cb0; stroke-width: 2 }
.series-0 { fill: #2b6cb0; color: #2b6cb0 } .series-1 { fill: #e3a72f; color: #e3a72f }
.series-2 { fill: #d1495b; color: #d1495b } .legend { margin-left: 1em; font-weight: bold }
footer { margin-top: 3em; color: #5b6b7b; font-size: .85em; overflow-wrap: anywhere }
"""


def page(report: Report) -> str:
    """The whole page. The same report gives the same text."""
    title = f"Report of {report.stream.name}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
    )
    style = element("style")
    # Its lines stay lines, which those of texts do not.
    style.text = _STYLE
    head.append(style)
    return document(element("html", head, element("body", element("h1", title), *_body(report)), lang="en"))


def _body(report: Report) -> Iterator[Element]:
    if not report.partitions:
        yield element("p", "The tables hold no records yet.", id="nothing")
        return
    whole = total(report.partitions.values())
    yield sections.totals(report, whole)
    yield sections.saved(whole)
    yield sections.by_period(report)
    yield sections.lateness(whole, report.stream.late.grace)
    yield sections.sessions(report.sessions)
    yield sections.sources(report)
    yield sections.reasons(report)
    read = ", ".join(f"{table} {snapshot_id}" for table, snapshot_id in sorted(report.snapshots.items()))
    yield element("footer", f"Made of the snapshots {read}.")
