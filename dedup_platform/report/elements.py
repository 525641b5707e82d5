"""HTML and SVG as elements: whatever a text holds, it stays a text, since only the writer of elements makes markup."""

from xml.etree.ElementTree import Element, tostring

from dedup_platform.escapes import one_line


def element(tag: str, *children: "Element | str", **attributes: str | float) -> Element:
    """An element; in the names of attributes a `_` stands for `-`, and at the end (`class_`) for nothing.

    A text is on one line: what a terminal would obey, or no page may hold, is spelled out.
    """
    made = Element(tag, {name.rstrip("_").replace("_", "-"): _text(value) for name, value in attributes.items()})
    for child in children:
        if isinstance(child, str):
            _add_text(made, one_line(child))
        else:
            made.append(child)
    return made


def document(root: Element) -> str:
    """A whole page."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _text(value: str | float) -> str:
    return one_line(value) if isinstance(value, str) else f"{value:g}"


def _add_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
