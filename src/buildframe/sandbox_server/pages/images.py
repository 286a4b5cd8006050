"""SVG images derived from names. All text is escaped."""

from __future__ import annotations

from html import escape

from buildframe.sandbox_server.world.hashed_random import SeededRandom

_COLORS = {
    "passed": "#3a7d44", "failed": "#b3382c", "failing": "#b3382c", "running": "#b8860b", "canceled": "#6b6b6b",
}  # fmt: skip
_RANDOM = SeededRandom(0)


def _svg(width: int, height: int, label: str, inside: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
        f' aria-label="{escape(label)}">{inside}</svg>'
    )


def _text(text: str, x: int, y: int, size: int) -> str:
    return (
        f'<text x="{x}" y="{y}" font-family="sans-serif" font-size="{size}" fill="#fff"'
        f' text-anchor="middle">{escape(text)}</text>'
    )


def _color(name: str) -> str:
    return f"hsl({int(_RANDOM.uniform(name) * 360)}, 55%, 42%)"


def emoji(name: str) -> str:
    """Draw an emoji: a square with the first letters of its name."""
    square = f'<rect width="64" height="64" rx="14" fill="{_color(name)}"/>'
    return _svg(64, 64, f":{name}:", square + _text(name[:2], 32, 43, 30))


def avatar(id: str) -> str:
    """Draw an avatar in a color derived from the UUID of a user."""
    face = f'<circle cx="32" cy="32" r="32" fill="{_color(id)}"/><circle cx="32" cy="26" r="11" fill="#fff"/>'
    return _svg(64, 64, "avatar", face + '<path d="M10 60a22 22 0 0 1 44 0z" fill="#fff"/>')


def badge(state: str) -> str:
    """Draw the badge of a build state."""
    left, right = '<rect width="50" height="20" fill="#444"/>', f'fill="{_COLORS.get(state, "#8a8a8a")}"/>'
    shape = f'{left}<rect x="50" width="80" height="20" {right}'
    return _svg(130, 20, f"build: {state}", shape + _text("build", 25, 14, 11) + _text(state, 90, 14, 11))
