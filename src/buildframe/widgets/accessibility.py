"""ARIA attributes, the Escape key and focus, which ipywidgets cannot set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets


class AccessibilityHelper(anywidget.AnyWidget):
    """
    An invisible widget that serves the box of class `bf-accessible` that contains it.

    `attributes` maps CSS selectors to attributes (`role` and `aria-…` only). Escape clicks the button that the selector
    `escape` finds, while it is visible.
    """

    _esm = Path(__file__).parent / "accessibility.js"

    attributes: Any = traitlets.Dict().tag(sync=True)
    escape = traitlets.Unicode().tag(sync=True)

    def move_focus(self, selector: str) -> None:
        """Move the focus to the element of a selector once it is enabled, unless the user is somewhere else."""
        self.send({"focus": selector})
