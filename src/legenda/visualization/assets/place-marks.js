"use strict";

// Places over a picture: the one that is meant, dashed, and the one that each model found, in its colour. Needs dom.js,
// theme.css and place-marks.css.
//
//   createPlaceMarks(truth, [{box, colour}, ...])   the drawing to be laid over the picture; null without any place
//
// Boxes are [x1, y1, x2, y2] in 0..1 of the picture; `truth` may be null. Where boxes coincide all stay visible: earlier
// models are drawn wider, and the dashes of the true one lie on the colours of those that found it.

const createPlaceMarks = (() => {
  const [STEP, HALO, DASHES] = [2, 2, 1.5]; // CSS pixels

  function outline([x1, y1, x2, y2], width, style) {
    return svg("rect", {
      x: x1 * 100, y: y1 * 100, width: (x2 - x1) * 100, height: (y2 - y1) * 100, class: style, "stroke-width": width,
    });
  }

  return function createPlaceMarks(truth, found) {
    if (truth === null && found.length === 0) return null;
    const marks = found.map(({ box, colour }, index) => {
      const width = STEP * (found.length - index);
      const node = svg("g", {}, outline(box, width + HALO, "mark-halo"), outline(box, width, "mark-line"));
      node.style.setProperty("--model", colour);
      return node;
    });
    return svg("svg",
      { class: "attention-overlay", viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      truth === null ? null : outline(truth, DASHES + HALO, "mark-ground"), ...marks,
      truth === null ? null : outline(truth, DASHES, "mark-truth"));
  };
})();
