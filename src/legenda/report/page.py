"""Self-contained HTML pages: styles, scripts and data are inlined, and a policy blocks everything else."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from string import Template
from typing import Any


def render_html(
    body: str,
    *,
    styles: Sequence[str | Traversable],
    scripts: Sequence[str | Traversable],
    data: Any,
    texts: Mapping[str, str],
    sources: Mapping[str, str],
) -> str:
    """Return an HTML page made from the assets of this package.

    body: the asset with what <body> holds. texts: the values of its placeholders and of "title", which are escaped.
    styles, scripts: names of assets, or files of other packages, in order. data: the JSON data that the page's script
    reads. sources: further directives of the Content-Security-Policy, such as {"img-src": "data:"}; nothing else may
    be loaded.
    """
    style_texts = [_asset(name) for name in styles]
    # after "<!--" and "<script", a parser of HTML would not end the element at "</script>"
    script_texts = [_asset(name).replace("<!--", r"\x3C!--") for name in scripts]
    policy = {
        "default-src": "'none'",
        "style-src": _hashes(style_texts),
        "script-src": _hashes(script_texts),
        **sources,
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    escaped = {name: _escape(text) for name, text in texts.items()}
    return Template(_asset("page.html")).substitute(
        title=escaped["title"],
        body=Template(_asset(body)).substitute(escaped),
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        styles="\n".join(f"<style>{text}</style>" for text in style_texts),
        scripts="\n".join(f"<script>{text}</script>" for text in script_texts),
        data=_json_in_script(data),
    )


def _asset(name: str | Traversable) -> str:
    file = resources.files("legenda.report").joinpath("assets", name) if isinstance(name, str) else name
    return file.read_text(encoding="utf-8")


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _escape(text: str) -> str:
    # file names may hold lone surrogates, which UTF-8 cannot encode
    return html.escape(text.encode("utf-8", "replace").decode())


def _json_in_script(value: Any) -> str:
    """Return JSON that cannot close the script element: <, > and & are escaped."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
