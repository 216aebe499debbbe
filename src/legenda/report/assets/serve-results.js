"use strict";

// The captions of an image by several models side by side, and the tools that all shown images share. Needs dom.js and
// attention-viewer.js.
//
//   createResults(entry, {colorOf, draw, showError, head})      an element with the property `viewers`
//   createTools(entries, viewers, {head, onHeadChange})         an element
//
// `entry` is {image, url, settings, results}: a file, its object URL, the settings, and the response of /api/captions
// for each model; `draw(entry, model)` returns a promise of the attention as PNG; `showError` shows a sentence;
// `head` is the shown head, null for the mean of all; `onHeadChange` is called with every later choice.

/** The caption as people write it, with a capital and a full stop. */
function asSentence(text) {
  return text === "" ? "" : `${text[0].toUpperCase()}${text.slice(1)}.`;
}

const [createResults, createTools] = (() => {
  const QUIET = "action quiet";
  const SURE = 0.5; // the score from which the box of a thing is shown at first

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

  function createCopy(label, texts) {
    const button = createButton(label, async () => {
      await copy(texts.map(asSentence).join("\n"));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    }, QUIET);
    return button;
  }

  function createDownloads(entry, result, { draw, showError }) {
    const stem = `${entry.image.name.replace(/\.[^.]*$/, "")}-${result.model.replace(/\W/g, "_")}`;
    const json = createButton("JSON", () => download(
      new Blob([JSON.stringify({ image: entry.image.name, settings: entry.settings, ...result }, null, 2)],
        { type: "application/json" }), `${stem}.json`), QUIET);
    const png = result.boxes === null ? null : createButton("PNG, word by word", async () => {
      png.disabled = true;
      try {
        download(await draw(entry, result.model), `${stem}.png`);
      } catch (error) {
        showError(error.message);
      }
      png.disabled = false;
    }, QUIET);
    const label = result.captions.length > 1 ? "Copy the sentences" : "Copy the sentence";
    return html("div", { class: "downloads" }, createCopy(label, result.captions.map(({ text }) => text)), json, png);
  }

  function headsOf({ heads }) {
    return heads === null ? null : { count: heads[0]?.length ?? 0, weights: (word, head) => heads[word][head] };
  }

  const PLURALS = { person: "people", knife: "knives", mouse: "mice", sheep: "sheep", broccoli: "broccoli" };

  function countOf(label, count) {
    if (count === 1) return label;
    const ending = /(s|sh|ch)$/.test(label) ? "es" : "s";
    return `${count} ${PLURALS[label] ?? (/^(skis|scissors)$/.test(label) ? label : label + ending)}`;
  }

  /** The things that the extractor sees: {drawing, list}, boxes over the image and one chip for each kind. */
  function createThings(things) {
    if (!things?.length) return { drawing: null, list: null };
    const marks = things.map(({ label, score, box: [x1, y1, x2, y2] }) => {
      const node = html("div", { class: score < SURE ? "thing is-unsure" : "thing" }, html("span", {}, label));
      Object.assign(node.style,
        { left: `${x1 * 100}%`, top: `${y1 * 100}%`, width: `${(x2 - x1) * 100}%`, height: `${(y2 - y1) * 100}%` });
      return node;
    });
    const drawing = html("div", { class: "things-drawing", "aria-hidden": "true" }, ...marks);
    function createChip(label, isSure) {
      const own = marks.filter((_, index) => things[index].label === label && (things[index].score >= SURE || !isSure));
      const scores = things.filter((thing) => thing.label === label).map(({ score }) => score.toFixed(2)).join(", ");
      const node = html("button",
        { type: "button", class: isSure ? "thing-name" : "thing-name is-unsure", title: `score ${scores}` },
        countOf(label, own.length));
      const light = (isLit) => {
        drawing.classList.toggle("is-lit", isLit);
        for (const mark of own) mark.classList.toggle("is-lit", isLit);
      };
      for (const type of ["pointerenter", "focus"]) node.addEventListener(type, () => light(true));
      for (const type of ["pointerleave", "blur"]) node.addEventListener(type, () => light(false));
      return node;
    }
    const labelsOf = (isSure) => new Set(things.filter(({ score }) => score >= SURE === isSure).map(({ label }) => label));
    const sure = labelsOf(true);
    const chips = [...[...sure].map((label) => createChip(label, true)),
      ...[...labelsOf(false)].filter((label) => !sure.has(label)).map((label) => createChip(label, false))];
    return { drawing, list: html("p", { class: "things", "aria-label": "Things seen" }, "seen", ...chips) };
  }

  function createResult(entry, result, options) {
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
        score: caption.confidence ?? caption.log_prob,
        scoreName: caption.confidence === null ? "log-probability" : "confidence",
        note: "",
        boxes: null,
      })),
    });
    const node = html("article", { class: "result", "aria-label": `Captions by ${result.model}` },
      result.warning === null ? null : html("p", { class: "problem" }, result.warning), host,
      html("h2", {}, result.model, html("small", {}, `${entry.image.name}, ${result.seconds.toFixed(2)} s`)),
      things.list,
      createDownloads(entry, result, options));
    return { node, viewer };
  }

  function createAll(entry, options) {
    const results = entry.results.map((result) => createResult(entry, result, options));
    const viewers = results.map(({ viewer }) => viewer);
    for (const viewer of viewers) if (options.head < viewer.heads) viewer.showHead(options.head);
    return Object.assign(html("div", { class: "results" }, ...results.map(({ node }) => node)), { viewers });
  }

  function toCsv(entries) {
    const quoted = (value) => `"${String(value).replaceAll('"', '""')}"`;
    const rows = entries.flatMap(({ image, results }) => results.flatMap(({ model, captions }) =>
      captions.map(({ text, log_prob: logProb, confidence }) =>
        [image.name, model, text, logProb, confidence ?? ""].map(quoted).join(","))));
    return ["image,model,caption,log_prob,confidence", ...rows, ""].join("\r\n");
  }

  function createTools(entries, viewers, { head, onHeadChange }) {
    const results = entries.flatMap((entry) => entry.results);
    const isUnsure = results.some(({ things }) => things?.some(({ score }) => score < SURE));
    const toggle = html("input", { type: "checkbox" });
    const node = html("div", { class: "tools", role: "group", "aria-label": "All captions" },
      createHeadChoice(viewers, { head, onChange: onHeadChange }),
      isUnsure ? html("label", { class: "choice" }, toggle, `boxes below ${SURE}`) : null,
      createCopy("Copy all", results.flatMap(({ captions }) => captions.map(({ text }) => text))),
      createButton("CSV", () => download(new Blob([toCsv(entries)], { type: "text/csv" }), "captions.csv"), QUIET));
    toggle.addEventListener("change", () => node.parentElement.classList.toggle("has-unsure", toggle.checked));
    return node;
  }

  return [createAll, createTools];
})();
