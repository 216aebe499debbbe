"use strict";

// Boxes over an image: the reference box, dashed, and the predicted box of each model in its color. Needs dom.js,
// theme.css and box-marks.css.
//
//   createBoxMarks(reference, [{box, color}, ...])   an SVG element to lay over the image; null without any box
//
// Boxes are [x1, y1, x2, y2] in 0..1 of the image; `reference` may be null. Boxes that coincide all stay visible: those
// of earlier models are drawn wider, and the dashes of the reference are drawn on top.

const createBoxMarks = (() => {
  const [WIDTH_STEP, HALO, DASH_WIDTH] = [2, 2, 1.5]; // CSS pixels

  function outline([x1, y1, x2, y2], width, style) {
    return svg("rect", {
      x: x1 * 100, y: y1 * 100, width: (x2 - x1) * 100, height: (y2 - y1) * 100, class: style, "stroke-width": width,
    });
  }

  return function createBoxMarks(reference, predictions) {
    if (reference === null && predictions.length === 0) return null;
    const marks = predictions.map(({ box, color }, index) => {
      const width = WIDTH_STEP * (predictions.length - index);
      const node = svg("g", {}, outline(box, width + HALO, "mark-halo"), outline(box, width, "mark-line"));
      node.style.setProperty("--model", color);
      return node;
    });
    return svg("svg",
      { class: "attention-overlay", viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      reference === null ? null : outline(reference, DASH_WIDTH + HALO, "mark-reference-halo"), ...marks,
      reference === null ? null : outline(reference, DASH_WIDTH, "mark-reference"));
  };
})();
