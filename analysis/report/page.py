"""From a document to one HTML file that needs nothing else.

The scripts in ``page/`` are ES modules, so that each says what it uses. Here they are joined
in the order of their imports into the one script of the page. Its content security policy lets
this script and this style sheet work, by their hashes, and nothing load from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import posixpath
import re
from importlib.resources import files
from typing import Final

from analysis.report.document import Document

_FOLDER: Final = files("analysis.report") / "page"
_ENTRY: Final = "main.js"
_IMPORT: Final = re.compile(r'^import (\{[^}]*\}) from "(\.\.?/[\w./-]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_SLOT: Final = re.compile(r"\{\{(\w+)\}\}")
_UNSAFE: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(document: Document) -> str:
    """Return the page as text."""
    script, style = joined_script(), (_FOLDER / "page.css").read_text("utf-8")
    slots = {
        "title": html.escape(f"actlas report: {document.content['store']}"),
        "policy": content_policy(script, style),
        "style": style,
        "script": script,
        "document": _embedded(document),
        "numbers": document.numbers,
    }
    template = (_FOLDER / "page.html").read_text("utf-8")
    return _SLOT.sub(lambda slot: slots[slot[1]], template)


def joined_script() -> str:
    """Return all modules as one script, each a scope of its own after those it imports from."""
    modules: dict[str, str] = {}
    _add_module(_ENTRY, modules)
    return "\n" + "\n".join(modules.values())


def _add_module(name: str, modules: dict[str, str]) -> None:
    text = _FOLDER.joinpath(*name.split("/")).read_text("utf-8")
    for _, imported in _IMPORT.findall(text):
        if _resolved(imported, name) not in modules:
            _add_module(_resolved(imported, name), modules)

    def taken(found: re.Match[str]) -> str:
        return f"const {found[1]} = {_scope(_resolved(found[2], name))};"

    body = _EXPORT.sub(r"\1", _IMPORT.sub(taken, text))
    exported = ", ".join(exported for _, exported in _EXPORT.findall(text))
    modules[name] = f"const {_scope(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def _resolved(imported: str, importer: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), imported))


def _scope(name: str) -> str:
    return re.sub(r"\W", "_", name)


def content_policy(script: str, style: str) -> str:
    """Return a policy under which only this script and this style sheet have an effect."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _embedded(document: Document) -> str:
    """Return JSON in which no name can end the element it is put into."""
    text = json.dumps(document.content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE)
