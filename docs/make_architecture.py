"""Draw the packages with their imports, and the path of a page from bytes to a frame, as SVG for the design page."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import buildframe

HERE = Path(__file__).parent
PACKAGE = "buildframe"
SOURCE = Path(buildframe.__file__).parent
FOLDER = HERE / "architecture"

Edge = tuple[str, str]
Rows = list[list[str]]

# --- packages and their imports ---------------------------------------------------------------------------------------

ROW, BOX, GAP, LETTER, WIDTH = 64, 30, 22, 8.2, 840
"""Pixels: distance of rows, height of a box, distance between boxes, width of a letter, width of the image."""


def imports() -> set[Edge]:
    """Return which package or module of the top level imports which."""
    names = {path.stem for path in SOURCE.iterdir()} - {"__init__"}
    found = set()
    for path in SOURCE.rglob("*.py"):
        importer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found |= {(importer, name) for name in imported_by(node) if name != importer}
    return {(a, b) for a, b in found if {a, b} <= names}


def imported_by(node: ast.AST) -> Iterable[str]:
    """Return the names below the package that an import statement names."""
    if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
        return [alias.name for alias in node.names]
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return [module.split(".")[1] for module in modules if module.startswith(f"{PACKAGE}.")]


def layers() -> Rows:
    """Return the layers that import-linter checks, the highest first."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return [layer.replace("|", " ").replace(":", " ").split() for layer in contract["layers"]]


def below(edges: set[Edge], package: str) -> set[str]:
    """Return what a package imports, directly or not."""
    direct = {b for a, b in edges if a == package}
    return direct.union(*(below(edges, each) for each in direct))


def without_implied(edges: set[Edge]) -> set[Edge]:
    """Leave out the imports that follow from a longer way."""
    ways = {a: [below(edges, b) for x, b in edges if x == a] for a, _ in edges}
    return {(a, b) for a, b in edges if not any(b in way for way in ways[a])}


def rows_of(layers: Rows, edges: set[Edge]) -> Rows:
    """Return the layers as rows; one whose packages import each other takes several, so that arrows lead down."""
    rows: Rows = []
    for layer in layers:
        inner = {(a, b) for a, b in edges if a in layer and b in layer}
        depth = {name: len(below(inner, name)) for name in layer}
        rows += [[name for name in layer if depth[name] == each] for each in sorted(set(depth.values()), reverse=True)]
    return rows


def place(rows: Rows, edges: set[Edge]) -> tuple[dict[str, tuple[float, float]], dict[Edge, list[str]]]:
    """Return the center of each box, and the points of each arrow: it gets one in each row that it crosses."""
    rows = [list(row) for row in rows]
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    ways: dict[Edge, list[str]] = {}
    for a, b in sorted(edges):
        crossed = range(row_of[a] + 1, row_of[b])
        ways[a, b] = [a, *(f"{a}>{b}>{number}" for number in crossed), b]
        for number in crossed:
            rows[number].append(f"{a}>{b}>{number}")
    near: dict[str, list[str]] = {name: [] for row in rows for name in row}
    for way in ways.values():
        for a, b in pairwise(way):
            near[a].append(b)
            near[b].append(a)
    x = {name: WIDTH * (k + 1) / (len(row) + 1) for row in rows for k, name in enumerate(row)}
    for _ in range(40):
        for row in [*rows, *reversed(rows)]:
            goals = {name: fmean([x[other] for other in near[name]] or [x[name]]) for name in row}
            row.sort(key=goals.__getitem__)
            x |= spread(row, goals)
    return {name: (x[name], ROW * number + 36) for number, row in enumerate(rows) for name in row}, ways


def spread(row: list[str], goals: dict[str, float]) -> dict[str, float]:
    """Place the boxes of a row close to their goals, in their order, without overlaps and inside of the image."""
    half = {name: width_of(name) / 2 for name in row}
    x = [goals[name] for name in row]
    for _ in range(60):
        for k, (a, b) in enumerate(pairwise(row)):
            if (push := (half[a] + half[b] + GAP - x[k + 1] + x[k]) / 2) > 0:
                x[k], x[k + 1] = x[k] - push, x[k + 1] + push
        x = [min(max(at, half[name] + 4), WIDTH - half[name] - 4) for at, name in zip(x, row, strict=True)]
    return dict(zip(row, x, strict=True))


def width_of(name: str) -> float:
    return 0 if ">" in name else len(name) * LETTER + 22


def packages() -> str:
    """Return the image of the packages: an arrow leads from each to those that it imports."""
    edges, ranks = imports(), layers()
    rows = rows_of(ranks, edges)
    at, ways = place(rows, without_implied(edges))
    number_of = {name: len(ranks) - k for k, layer in enumerate(ranks) for name in layer}
    parts = [
        layer_line(number_of[row[0]], ROW * k)
        for k, row in enumerate(rows)
        if k == 0 or number_of[row[0]] < number_of[rows[k - 1][0]]
    ]
    parts += [arrow([at[name] for name in way], f"{a} imports {b}") for (a, b), way in ways.items()]
    parts += [package_box(name, number_of[name], *at[name], edges) for row in rows for name in row]
    return image("Packages by layer, with an arrow from each to those that it imports", WIDTH, ROW * len(rows), parts)


def layer_line(layer: int, y: float) -> str:
    return f'<path class="line" d="M0 {y}H{WIDTH}"/>{words(40, y + 22, f"layer {layer}", "t")}'


def package_box(name: str, layer: int, x: float, y: float, edges: set[Edge]) -> str:
    imported = ", ".join(sorted(b for a, b in edges if a == name)) or "nothing of the package"
    is_package = (SOURCE / name / "__init__.py").exists()
    anchor = f"#{PACKAGE}-{name.replace('_', '-')}" if is_package else f"#{PACKAGE}"
    title = f"<title>{name} (layer {layer}) imports {imported}.</title>"
    drawn = f"{title}{box(x, y, width_of(name), BOX)}{words(x, y + 5, name, 'n')}"
    return f'<a href="reference/modules.html{anchor}">{drawn}</a>'


# --- the path of a page -----------------------------------------------------------------------------------------------

Step = tuple[str, str]

REQUEST: tuple[Step, ...] = (
    ("workspace.Workspace.builds", "filters and options, checked"),
    ("fetching.builds.builds", "one listing: columns, limits, metadata"),
    ("fetching.workers.WorkerPool", "threads; each takes a time range"),
    ("fetching.time_pagination.TimePagination.start", "which page is next: a query"),
    ("fetching.source.BuildPages.fetch", "a query as a request"),
    ("http.retry.fetch", "again after 429, 5xx or a cut body, if that is safe"),
    ("http.client.Client.send", "once; counts, and keeps the deadline"),
    ("http.rate_limit.RateLimiter.acquire", "waits until the service allows it"),
)
"""What happens to a request, in the order of the calls."""

RESPONSE: tuple[Step, ...] = (
    ("http.response.read_body", "bytes, unpacked, of limited size"),
    ("http.rate_limit.RateLimiter.release", "learns what the service still allows"),
    ("http.protocol.read_page", "msgspec decodes only what columns need: rows"),
    ("fetching.range_reader.RangeReader.take", "drops repeated rows, moves the cursor"),
    ("fetching.decoder.PageDecoder.tables", "columns of the declared types: Arrow tables"),
    ("fetching.ordering.newest_first", "the batches of all threads in one order"),
    ("fetching.decoder.PageDecoder.frames", "one DataFrame with the declared dtypes"),
    ("fetching.metadata.ListingMetadata.attach", "attrs: complete, as_of, requests"),
)
"""What happens to its response, in the order of the calls."""


SERVICE = "the service, over httpx and http.sockets.Sockets, which limits the time of each read and write"

COLUMN, BETWEEN, STEP = 396, 68, 66
"""Pixels: width of a box, distance of the two columns, distance of the steps."""


def page_path() -> str:
    """Return the image of the path of a page: the request goes down on the left, the response up on the right."""
    left, right, bottom = COLUMN / 2, COLUMN * 1.5 + BETWEEN, STEP * len(REQUEST) + 24
    down = [(left, STEP * row + 24) for row in range(len(REQUEST))]
    up = [(right, bottom - STEP * (row + 1)) for row in range(len(RESPONSE))]
    ends = [*down, (left, bottom)], [(right, bottom), *up]
    parts = [arrow(each, "", shift=22) for points in ends for each in pairwise(points)]
    again = next(k for k, (name, _) in enumerate(REQUEST) if name == "http.retry.fetch")
    for row, text in ((again, "again"), (again - 1, "next")):
        y = down[row][1]
        parts.append(arrow([(right - COLUMN / 2, y), (left + COLUMN / 2, y)], ""))
        parts.append(words(COLUMN + BETWEEN / 2, y - 8, text, "t"))
    for (x, y), (name, text) in zip([*down, *up], [*REQUEST, *RESPONSE], strict=True):
        parts += [box(x, y, COLUMN, 44), words(x, y - 4, name, "n"), words(x, y + 14, text, "t")]
    width = 2 * COLUMN + BETWEEN
    parts += [box(width / 2, bottom, width, 36, "service"), words(width / 2, bottom + 5, SERVICE, "t")]
    label = "The path of a page: the request from the workspace to the service, and the response back to a DataFrame"
    return image(label, width, int(bottom) + 22, parts)


# --- SVG --------------------------------------------------------------------------------------------------------------

STYLE = """
.diagram { display: block; width: 100%; min-width: 640px; font: 13px var(--pst-font-family-base, sans-serif); }
.diagram rect { fill: var(--pst-color-surface, #f3f4f5); stroke: var(--pst-color-border, #c9c9c9); }
.diagram rect.service { fill: none; stroke-dasharray: 5 4; }
.diagram path { fill: none; stroke: var(--pst-color-text-muted, #48566b); }
.diagram .line { stroke: var(--pst-color-border, #c9c9c9); stroke-dasharray: 2 4; }
.diagram .head { fill: var(--pst-color-text-muted, #48566b); stroke: none; }
.diagram text { fill: var(--pst-color-text-base, #222832); text-anchor: middle; }
.diagram .t { fill: var(--pst-color-text-muted, #48566b); }
.diagram .n { font: 600 13px var(--pst-font-family-monospace, monospace); }
.diagram a:hover rect { stroke: var(--pst-color-primary, #0a7d91); stroke-width: 2; }
"""
"""In the colors of the site's theme, light and dark."""


def image(label: str, width: int, height: int, parts: Iterable[str]) -> str:
    """Return an image that scrolls if the window is narrow."""
    arrow_head = '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    head = f'<defs>{arrow_head}<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
    inner = "\n".join([f"<style>{STYLE}</style>", head, *parts])
    about = f'role="group" aria-label="{escape(label)}" viewBox="0 0 {width} {height}"'
    return f'<div style="overflow-x: auto">\n<svg class="diagram" {about}>\n{inner}\n</svg>\n</div>\n'


def box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    left, top = x - width / 2, y - height / 2
    return f'<rect class="{kind}" x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5"/>'


def words(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


def arrow(points: Sequence[tuple[float, float]], title: str, shift: float = BOX / 2) -> str:
    """Return an arrow through points; it begins and ends `shift` beside the boxes if it leads up or down."""
    (x, y), *between, (end_x, end_y) = points
    way = (end_y > y) - (end_y < y)
    path = f"M{x:.0f} {y + way * shift:.0f}"
    previous, points = (x, y + way * shift), [*between, (end_x, end_y - way * (shift + 1))]
    for x, y in points:
        middle = (previous[1] + y) / 2
        path += f"C{previous[0]:.0f} {middle:.0f} {x:.0f} {middle:.0f} {x:.0f} {y:.0f}"
        previous = (x, y)
    return f'<path d="{path}" marker-end="url(#head)"><title>{escape(title)}</title></path>'


def write() -> None:
    """Write both images."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "packages.html").write_text(packages(), encoding="utf-8")
    (FOLDER / "page.html").write_text(page_path(), encoding="utf-8")


if __name__ == "__main__":
    write()
