"use strict";

// The captions of several models side by side, with downloads. Needs dom.js and attention-viewer.js.
//
//   createResults(entry, {colorOf, draw, showError, head, onHeadChange})
//
// `entry` is {image, url, settings, results}: a file, its object URL, the settings, and the response of /api/captions
// for each model; `draw(entry, model, head)` returns a promise of the attention as PNG; `showError` shows a sentence;
// `head` is the initial head, null for the mean of all; `onHeadChange` is called with every later choice.

const createResults = (() => {
  function download(blob, name) {
    const url = URL.createObjectURL(blob);
    html("a", { href: url, download: name }).click();
    URL.revokeObjectURL(url);
  }

  function createButton(text, onClick) {
    const node = html("button", { type: "button", class: "action quiet" }, text);
    node.addEventListener("click", onClick);
    return node;
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
    });
    return button;
  }

  function createDownloads(entry, result, state, { draw, showError }) {
    const stem = `${entry.image.name.replace(/\.[^.]*$/, "")}-${result.model.replace(/\W/g, "_")}`;
    const json = createButton("JSON", () => download(
      new Blob([JSON.stringify({ image: entry.image.name, settings: entry.settings, ...result }, null, 2)],
        { type: "application/json" }), `${stem}.json`));
    const png = result.boxes === null ? null : createButton("PNG, word by word", async () => {
      png.disabled = true;
      try {
        download(await draw(entry, result.model, state.head), `${stem}.png`);
      } catch (error) {
        showError(error.message);
      }
      png.disabled = false;
    });
    return html("div", { class: "downloads" }, createCopy(result.captions), json, png);
  }

  function headsOf({ heads }) {
    return heads === null ? null : { count: heads[0]?.length ?? 0, weights: (word, head) => heads[word][head] };
  }

  function createThings(things) {
    if (!things?.length) return null;
    return html("p", { class: "things" },
      `seen: ${things.map(({ label, score }) => `${label} ${score.toFixed(2)}`).join(", ")}`);
  }

  function createResult(entry, result, state, options) {
    const host = html("div");
    const viewer = createAttentionViewer(host, {
      image: { source: entry.url, description: `Image ${entry.image.name}` },
      boxes: result.boxes ?? [],
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
      createThings(result.things),
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
