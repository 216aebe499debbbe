"use strict";

// The captions of several models side by side, with downloads. Needs dom.js and attention-viewer.js.
//
//   createResults(entry, {colorOf, draw, showError, head, onHeadChange})
//
// `entry` is {image, url, settings, results}: a file, its object URL, the settings, and the response of /api/captions
// for each model; `draw(entry, model, head)` returns a promise of the attention as PNG; `showError` shows a sentence;
// `head` is the initial head, null for the mean of all; `onHeadChange` is called with every later choice.

const createResults = (() => {
  const QUIET = "action quiet";

  function download(blob, name) {
    const url = URL.createObjectURL(blob);
    html("a", { href: url, download: name }).click();
    URL.revokeObjectURL(url);
  }

  /** Copy without the clipboard's interface too, which browsers offer on this machine and over HTTPS alone. */
  function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = html("textarea", { class: "unseen" }, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    return Promise.resolve();
  }

  function createCopy(captions) {
    const label = captions.length > 1 ? "Copy the sentences" : "Copy the sentence";
    const button = createButton(label, async () => {
      await copy(captions.map(({ text }) => text).join("\n"));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    }, QUIET);
    return button;
  }

  function createDownloads(entry, result, state, { draw, showError }) {
    const stem = `${entry.image.name.replace(/\.[^.]*$/, "")}-${result.model.replace(/\W/g, "_")}`;
    const json = createButton("JSON", () => download(
      new Blob([JSON.stringify({ image: entry.image.name, settings: entry.settings, ...result }, null, 2)],
        { type: "application/json" }), `${stem}.json`), QUIET);
    const png = result.boxes === null ? null : createButton("PNG, word by word", async () => {
      png.disabled = true;
      try {
        download(await draw(entry, result.model, state.head), `${stem}.png`);
      } catch (error) {
        showError(error.message);
      }
      png.disabled = false;
    }, QUIET);
    return html("div", { class: "downloads" }, createCopy(result.captions), json, png);
  }

  function headsOf({ heads }) {
    return heads === null ? null : { count: heads[0]?.length ?? 0, weights: (word, head) => heads[word][head] };
  }

  /** The things that the extractor sees: {drawing, list}, boxes over the image and a list that points at them. */
  function createThings(things) {
    if (!things?.length) return { drawing: null, list: null };
    const marks = things.map(({ label, box: [x1, y1, x2, y2] }) => {
      const node = html("div", { class: "thing" }, html("span", {}, label));
      Object.assign(node.style,
        { left: `${x1 * 100}%`, top: `${y1 * 100}%`, width: `${(x2 - x1) * 100}%`, height: `${(y2 - y1) * 100}%` });
      return node;
    });
    const drawing = html("div", { class: "things-drawing", "aria-hidden": "true" }, ...marks);
    const names = things.map(({ label, score }, index) => {
      const node = html("button", { type: "button", class: "thing-name" }, label, html("small", {}, score.toFixed(2)));
      const light = (isLit) => {
        drawing.classList.toggle("is-lit", isLit);
        marks[index].classList.toggle("is-lit", isLit);
      };
      for (const type of ["pointerenter", "focus"]) node.addEventListener(type, () => light(true));
      for (const type of ["pointerleave", "blur"]) node.addEventListener(type, () => light(false));
      return node;
    });
    return { drawing, list: html("p", { class: "things", "aria-label": "Things seen" }, "seen", ...names) };
  }

  function createResult(entry, result, state, options) {
    const host = html("div");
    const things = createThings(result.things);
    const viewer = createAttentionViewer(host, {
      image: { source: entry.url, description: `Image ${entry.image.name}` },
      boxes: result.boxes ?? [],
      drawing: things.drawing,
      captions: result.captions.map((caption, index) => ({
        name: result.captions.length === 1 ? "caption" : `caption ${index + 1}`,
        color: options.colorOf(result.model),
        words: caption.words,
        attention: caption.attention,
        heads: headsOf(caption),
        verdict: null,
        score: caption.log_prob,
        scoreName: "log-probability",
        note: "",
        boxes: null,
      })),
    });
    const node = html("article", { class: "result", "aria-label": `Captions by ${result.model}` },
      html("h2", {}, result.model, html("small", {}, `${entry.image.name}, ${result.seconds.toFixed(2)} s`)),
      result.warning === null ? null : html("p", { class: "problem" }, result.warning), host,
      things.list,
      createDownloads(entry, result, state, options));
    return { node, viewer };
  }

  return function createResults(entry, options) {
    const state = { head: null };
    const results = entry.results.map((result) => createResult(entry, result, state, options));
    const viewers = results.map(({ viewer }) => viewer);
    if (viewers.some(({ heads }) => options.head !== null && options.head < heads)) state.head = options.head;
    const choice = createHeadChoice(viewers, {
      head: state.head,
      onChange: (head) => {
        state.head = head;
        options.onHeadChange(head);
      },
    });
    return html("div", {}, choice, html("div", { class: "results" }, ...results.map(({ node }) => node)));
  };
})();
