"""What a page of HTML says in its tables."""

from html.parser import HTMLParser


class PageTables(HTMLParser):
    """The texts of the cells of each table by its id, row by row, and of whatever has an id itself."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.texts: dict[str, str] = {}
        self.tags: set[str] = set()
        self._table = ""
        self._ids: list[str] = []
        self._is_in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        name = dict(attrs).get("id") or ""
        if tag == "table":
            self._table = name
        if tag == "tr":
            self.rows.setdefault(self._table, []).append([])
        if tag in ("th", "td"):
            self._is_in_cell = True
            self.rows[self._table][-1].append("")
            self._ids.append(name)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._is_in_cell = False
            self._ids.pop()

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[self._table][-1][-1] += data
            if self._ids[-1]:
                self.texts[self._ids[-1]] = data
