"use strict";

// The absolute weights of a word, below an image whose shade is relative to the largest weight. Needs dom.js.
//
//   findWholeRegions(boxes)           whether each region is the whole image while others are not: its weight has no position
//   createAttentionScale(hasWhole)    {node, show(weights, whole), rest()}

function findWholeRegions(boxes) {
  const whole = boxes.map(([x1, y1, x2, y2]) => (x2 - x1) * (y2 - y1) > 0.99);
  return whole.every(Boolean) ? whole.map(() => false) : whole;
}

function createAttentionScale(hasWhole) {
  const text = html("div");
  const wholeText = hasWhole ? html("div") : null;
  const fill = html("span", { class: "attention-fill" });
  const uniform = html("span", { class: "attention-uniform" });
  const bar = html("span", { class: "attention-bar", "aria-hidden": "true" }, fill, uniform);
  const node = html("div", { class: "attention-scale" }, bar, text, wholeText);

  function rest() {
    node.classList.remove("is-lit");
    text.textContent = "brightness: weight relative to the largest";
    if (hasWhole) wholeText.textContent = "some regions are the whole image";
  }

  function show(weights, whole) {
    const largest = Math.max(...weights.filter((_, index) => !whole[index]));
    node.classList.add("is-lit");
    fill.style.width = `${Math.min(1, largest) * 100}%`;
    uniform.style.left = `${100 / weights.length}%`;
    text.textContent = `largest ${largest.toFixed(2)}, ${(largest * weights.length).toFixed(1)} × uniform ` +
      `(${(1 / weights.length).toFixed(2)} in ${weights.length})`;
    const sum = weights.filter((_, index) => whole[index]).reduce((total, weight) => total + weight, 0);
    if (hasWhole) wholeText.textContent = `${sum.toFixed(2)} on regions that are the whole image`;
  }

  rest();
  return { node, show, rest };
}
