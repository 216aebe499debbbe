"""Pages that carry all they need: styles, scripts and data inside, and a policy that lets nothing else in."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any


def compose_page(
    template: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    texts: Mapping[str, str],
    sources: Mapping[str, str],
) -> str:
    """One HTML page from assets of this room.

    template: the asset with the places $policy, $styles, $scripts, $data and those of `texts`, whose markup is escaped.
    styles, scripts: names of assets, in order. data: what the page's script reads, as JSON. sources: what the
    Content-Security-Policy allows beside them, such as {"img-src": "data:"}; nothing else may be loaded.
    """
    sheets, programs = ([_asset(name) for name in names] for names in (styles, scripts))
    policy = {
        "default-src": "'none'",
        "style-src": _hashes(sheets),
        "script-src": _hashes(programs),
        **sources,
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return Template(_asset(template)).substitute(
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        styles="\n".join(f"<style>{text}</style>" for text in sheets),
        scripts="\n".join(f"<script>{text}</script>" for text in programs),
        data=_json_in_script(data),
        **{name: _markup(text) for name, text in texts.items()},
    )


def _asset(name: str) -> str:
    return resources.files("legenda.visualization").joinpath("assets", name).read_text(encoding="utf-8")


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _markup(text: str) -> str:
    # names of files may hold lone surrogates, which UTF-8 cannot write
    return html.escape(text.encode("utf-8", "replace").decode())


def _json_in_script(value: Any) -> str:
    """JSON in which no string can close or open an element: <, > and & only occur as escapes."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
