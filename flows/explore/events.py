"""What a widget tells, for those who only need to know that something changed."""

from __future__ import annotations

from collections.abc import Callable

from bokeh.model import Model


def when_changed(model: Model, name: str, call: Callable[[], None]) -> None:
    """Call a function whenever a property of a model gets another value, by whomever."""

    def changed(attr: str, old: object, new: object) -> None:  # noqa: ARG001  # as Bokeh asks for
        call()

    model.on_change(name, changed)
