"use strict";

// An image with its regions, captions below it, and the attention over the regions for each word.
// Needs dom.js, theme.css and attention-viewer.css.
//
//   createAttentionViewer(host, {
//     image: {source, description},            a URL or data URI, and its alternative text; null for none
//     boxes: [[x1, y1, x2, y2], ...],          in 0..1 of the image
//     captions: [{name, color, words, attention, heads, verdict, verdicts, score, scoreName, note, boxes, box}, ...],
//     drawing,                                 another element over the image; optional
//   });
//
// `attention` is null or one array of weights over the boxes per word, the mean of all heads; `heads` is null or
// {count, weights}, where `weights(word, head)` returns the weights of one head; `verdict` is true, false or null, and
// `verdicts` the labels of both, by default "true" and "false"; `boxes` of a caption are null where they are those of
// the image; a caption with `box` is the prediction of a model that predicts boxes and no words. Returns {heads,
// showHead}: the largest number of heads of a caption, and a function that shows one of them, or with null the mean; a
// caption without that head shows its mean and a tag.
// Pointing at a word or focusing it highlights its regions, a click or tap pins them, Escape releases them.
// Each caption is one tab stop; the arrow keys, Home and End move between its words.

/** Whether each region is the whole image while others are not: its weight has no position. */
function findWholeRegions(boxes) {
  const whole = boxes.map(([x1, y1, x2, y2]) => (x2 - x1) * (y2 - y1) > 0.99);
  return whole.every(Boolean) ? whole.map(() => false) : whole;
}

/** The absolute weights of a word, below an image whose shade is relative to the largest weight. */
function createAttentionScale(hasWhole) {
  const text = html("div");
  const wholeText = hasWhole ? html("div") : null;
  const fill = html("span", { class: "attention-fill" });
  const uniform = html("span", { class: "attention-uniform" });
  const bar = html("span", { class: "attention-bar", "aria-hidden": "true" }, fill, uniform);
  const node = html("div", { class: "attention-scale" }, bar, text, wholeText);

  function rest() {
    node.classList.remove("is-lit");
    text.textContent = "point at a word: brighter is a larger weight";
    if (hasWhole) wholeText.textContent = "weight on the whole image is not drawn";
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

const createAttentionViewer = (() => {
  const MAX_OUTLINES = 16; // with more regions, outlines would hide the image: only the shade shows them
  const MAX_IMAGE_HEIGHT = "26rem"; // unless the page sets --image-height
  let maskCount = 0;

  function rectangle(box) {
    const [x1, y1, x2, y2] = box.map((value) => value * 100);
    return { x: x1, y: y1, width: x2 - x1, height: y2 - y1 };
  }

  /** A rectangle with a halo, visible on any image. */
  function outline(box, attributes) {
    return svg("g", attributes,
      svg("rect", { ...rectangle(box), class: "attention-halo" }),
      svg("rect", { ...rectangle(box), class: "attention-line" }));
  }

  function indexOfLargest(weights) {
    return weights.reduce((best, weight, index) => (weight > weights[best] ? index : best), 0);
  }

  /** The overlay of an image: `light(weights)` shows the weights of one word, `rest()` the plain regions. */
  function createOverlay(boxes) {
    const whole = findWholeRegions(boxes);
    maskCount += 1;
    const mask = `attention-mask-${maskCount}`;
    const beyond = rectangle([-0.05, -0.05, 1.05, 1.05]); // avoids a bright edge where pixels are rounded
    const windows = boxes.map((box) => svg("rect", { ...rectangle(box), fill: "black", "fill-opacity": 0 }));
    const regions = boxes.length > MAX_OUTLINES ? [] : boxes.map((box) => outline(box, { class: "attention-region" }));
    const strongest = svg("g", { class: "attention-strongest" });
    const label = html("span", { class: "attention-weight", hidden: "" });
    const drawing = svg("svg",
      { class: "attention-overlay", hidden: "", viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("mask", { id: mask, maskUnits: "userSpaceOnUse", ...beyond },
        svg("rect", { ...beyond, fill: "white" }), ...windows),
      svg("rect", { class: "attention-shade", ...beyond, mask: `url(#${mask})` }),
      ...regions, strongest);

    function clear() {
      drawing.classList.remove("is-lit");
      strongest.replaceChildren();
      label.hidden = true;
    }

    function hide() {
      clear();
      drawing.setAttribute("hidden", "");
    }

    function rest() {
      clear();
      drawing.removeAttribute("hidden");
      for (const region of regions) {
        region.setAttribute("opacity", 1);
        region.setAttribute("stroke-width", 1.5);
      }
    }

    function light(all) {
      const weights = all.map((weight, index) => (whole[index] ? 0 : weight));
      const best = indexOfLargest(weights);
      const largest = weights[best];
      if (!(largest > 0)) return rest();
      drawing.removeAttribute("hidden");
      drawing.classList.add("is-lit");
      weights.forEach((weight, index) => {
        const share = weight / largest;
        windows[index].setAttribute("fill-opacity", share.toFixed(3));
        if (regions.length > 0) {
          regions[index].setAttribute("opacity", (0.15 + 0.85 * share).toFixed(3));
          regions[index].setAttribute("stroke-width", (1 + 2 * share).toFixed(2));
        }
      });
      strongest.replaceChildren(...outline(boxes[best], {}).children);
      placeLabel(boxes[best], largest);
    }

    /** Above the region, else below it, else inside where the region is as high as the image. */
    function placeLabel([x1, y1, x2, y2], weight) {
      label.textContent = weight.toFixed(2);
      label.hidden = false;
      const side = y1 >= 0.12 ? "above" : y2 <= 0.88 ? "below" : "inside";
      label.dataset.side = side;
      label.style.top = `${(side === "below" ? y2 : y1) * 100}%`;
      label.style.left = x1 < 0.8 ? `${x1 * 100}%` : "auto";
      label.style.right = x1 < 0.8 ? "auto" : `${(1 - x2) * 100}%`;
    }

    return { nodes: [drawing, label], light, rest, hide, whole };
  }

  function createStage(image, overlays, drawing) {
    if (image === null) return null;
    const node = html("img", { alt: image.description, decoding: "async" });
    const stage = html("div", { class: "attention-stage" }, node,
      ...overlays.flatMap(({ nodes }) => nodes), drawing);
    node.addEventListener("load", () => {
      const ratio = node.naturalWidth / node.naturalHeight;
      stage.style.width = `min(100%, calc(var(--image-height, ${MAX_IMAGE_HEIGHT}) * ${ratio}))`;
    });
    node.src = image.source;
    return stage;
  }

  /** The weights of a word: those of one head where the caption has it, else the mean of all heads. */
  function weightsOf({ attention, heads }, word, head) {
    return head !== null && head < (heads?.count ?? 0) ? heads.weights(word, head) : attention[word];
  }

  function describeWord(word, weights) {
    const best = indexOfLargest(weights);
    return `${word}, strongest region ${best + 1} of ${weights.length}, weight ${weights[best].toFixed(2)}`;
  }

  function moveFocus(event, words) {
    const current = words.indexOf(event.target);
    const moves = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: words.length - 1 };
    const target = words[moves[event.key]];
    if (current < 0 || target === undefined) return;
    event.preventDefault();
    words[current].tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  /** The highlighted word: the one under the pointer, else with keyboard focus, else the pinned one. */
  function createSelection(resting, scale) {
    const words = { hovered: null, focused: null, pinned: null };
    let shown = null;
    let visible = resting;
    resting.rest();

    function set(role, word) {
      words.pinned?.node.removeAttribute("aria-pressed");
      words[role] = word;
      words.pinned?.node.setAttribute("aria-pressed", "true");
      shown?.node.classList.remove("is-lit");
      shown = words.hovered ?? words.focused ?? words.pinned;
      shown?.node.classList.add("is-lit");
      const overlay = shown?.overlay ?? resting;
      if (overlay !== visible) visible.hide();
      visible = overlay;
      if (shown === null) {
        overlay.rest();
        scale.rest();
      } else {
        overlay.light(shown.weights());
        scale.show(shown.weights(), overlay.whole);
      }
    }

    return {
      attach(word) {
        const { node } = word;
        node.addEventListener("pointerenter", () => set("hovered", word));
        node.addEventListener("pointerleave", () => set("hovered", null));
        node.addEventListener("focus", () => set("focused", node.matches(":focus-visible") ? word : null));
        node.addEventListener("blur", () => set("focused", null));
        node.addEventListener("click", () => set("pinned", words.pinned === word ? null : word));
      },
      release() {
        set("focused", null);
        set("pinned", null);
      },
      /** Redraws the highlighted word after its weights have changed. */
      refresh() {
        set("hovered", words.hovered);
      },
    };
  }

  /** The words of a caption as {node, showHead}. */
  function createWords(caption, overlay, selection) {
    if (caption.box) return { node: null, showHead() {} };
    const plain = (...children) => ({ node: html("p", { class: "attention-words" }, ...children), showHead() {} });
    if (caption.words.length === 0) return plain(html("em", {}, "no words"));
    if (caption.attention === null || caption.attention[0].length === 0) {
      return plain(...caption.words.map((word) => html("span", { class: "attention-word" }, word)));
    }
    let shown = null;
    const words = caption.words.map((word, index) => {
      const node = html("button",
        { type: "button", class: "attention-word", tabindex: index === 0 ? 0 : -1 }, word);
      selection.attach({ node, weights: () => weightsOf(caption, index, shown), overlay });
      return node;
    });
    const node = html("div",
      { class: "attention-words", role: "toolbar", "aria-label": `Words of the caption by ${caption.name}` }, ...words);
    node.addEventListener("keydown", (event) => moveFocus(event, words));
    function showHead(head) {
      shown = head;
      words.forEach((word, index) => word.setAttribute("aria-label",
        describeWord(caption.words[index], weightsOf(caption, index, head))));
    }
    showHead(null);
    return { node, showHead };
  }

  /** A tag that names the shown head, hidden for the mean. */
  function createHeadTag(caption) {
    const node = html("span", { class: "attention-head", hidden: "" });
    return {
      node,
      showHead(head) {
        node.hidden = head === null || caption.attention === null;
        if (!node.hidden) node.textContent = head < (caption.heads?.count ?? 0) ? `head ${head}` : `no head ${head}: mean`;
      },
    };
  }

  function createVerdict(verdict, [yes, no]) {
    if (verdict === null) return null;
    return html("span", { class: `attention-verdict ${verdict ? "is-true" : "is-false"}` },
      html("span", { "aria-hidden": "true" }, verdict ? "✓ " : "✗ "), verdict ? yes : no);
  }

  function createCaption(caption, overlay, selection) {
    const score = caption.score === null ? null
      : html("span", { class: "attention-score" }, `${caption.scoreName} ${caption.score.toFixed(2)}`);
    const [words, tag] = [createWords(caption, overlay, selection), createHeadTag(caption)];
    const node = html("div", { class: "attention-caption" },
      html("div", { class: "attention-heading" },
        html("span", { class: "attention-swatch", "aria-hidden": "true" }),
        html("span", { class: "attention-name" }, caption.name), tag.node, score, createVerdict(caption.verdict, caption.verdicts ?? ["true", "false"])),
      words.node,
      caption.note === "" ? null : html("p", { class: "attention-note" }, caption.note));
    node.style.setProperty("--model", caption.color);
    return { node, parts: [words, tag] };
  }

  return function createAttentionViewer(host, { image, boxes, captions, drawing = null }) {
    const common = createOverlay(boxes);
    const overlays = captions.map((caption) => (caption.boxes === null ? common : createOverlay(caption.boxes)));
    const scale = createAttentionScale(overlays.some(({ whole }) => whole.some(Boolean)));
    const selection = createSelection(overlays[0] ?? common, scale);
    const shown = captions.map((caption, index) => createCaption(caption, overlays[index], selection));
    const stage = createStage(image, [...new Set([common, ...overlays])], drawing);
    const readable = captions.some(({ attention }) => attention !== null && attention[0]?.length > 0);
    const viewer = html("div", { class: "attention-viewer" }, stage, readable ? scale.node : null, ...shown.map(({ node }) => node));
    viewer.addEventListener("keydown", (event) => {
      if (event.key === "Escape") selection.release();
    });
    host.replaceChildren(viewer);
    return {
      heads: Math.max(0, ...captions.map(({ heads }) => heads?.count ?? 0)),
      showHead(head) {
        for (const part of shown.flatMap(({ parts }) => parts)) part.showHead(head);
        selection.refresh();
      },
    };
  };
})();

/** The weights of single heads from the JSON of report/page.py, for the viewer: {count, weights}. */
function decodeHeads({ count, largest, levels }, regions) {
  const bytes = Uint8Array.from(atob(levels), (character) => character.charCodeAt(0));
  return {
    count,
    weights(word, head) {
      const start = (word * count + head) * regions;
      return Array.from(bytes.subarray(start, start + regions), (byte) => (byte / 255) * largest[word][head]);
    },
  };
}

/**
 * A select element for the attention that all viewers of a page show: the mean of all heads, or one head; null where no
 * caption has several heads. `head` is the initial one, null for the mean; `onChange` is called with every later choice.
 */
function createHeadChoice(viewers, { head: initial = null, onChange = () => {} } = {}) {
  const count = Math.max(0, ...viewers.map(({ heads }) => heads));
  if (count < 2) return null;
  const select = html("select", {}, html("option", { value: "" }, "all heads averaged"),
    ...Array.from({ length: count }, (_, head) => html("option", { value: head }, `head ${head}`)));
  function show(head) {
    for (const viewer of viewers) viewer.showHead(head);
  }
  if (initial !== null && initial < count) {
    select.value = initial;
    show(initial);
  }
  select.addEventListener("change", () => {
    const head = select.value === "" ? null : Number(select.value);
    show(head);
    onChange(head);
  });
  return html("label", { class: "choice" }, html("span", {}, "Attention"), select);
}
