"use strict";

// Elements in one call. Children that are strings become text nodes, so no data can turn into markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** An HTML element; attributes and children that are null are left out. */
function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function createButton(text, onClick, style = "action") {
  const node = html("button", { type: "button", class: style }, text);
  node.addEventListener("click", onClick);
  return node;
}
