"use strict";

// The captions of several models side by side, with what can be kept of them. Needs dom.js, attention-viewer.js and
// head-choice.js.
//
//   createAnswers(entry, {colourOf, draw, complain, chosen, heard})
//
// `entry` is {picture, address, wish, answers}: a file, its address, the settings, and what /api/captions gave for each
// model; `draw(entry, model, head)` promises the sheet as PNG; `complain` shows a sentence; `chosen` is the
// head to begin with, null for the mean of all; `heard` is told of every other choice.

const createAnswers = (() => {
  function keep(blob, name) {
    const address = URL.createObjectURL(blob);
    html("a", { href: address, download: name }).click();
    URL.revokeObjectURL(address);
  }

  function createButton(text, heard) {
    const node = html("button", { type: "button", class: "action quiet" }, text);
    node.addEventListener("click", heard);
    return node;
  }

  function createDownloads(entry, answer, shown, { draw, complain }) {
    const stem = `${entry.picture.name.replace(/\.[^.]*$/, "")}-${answer.model.replace(/\W/g, "_")}`;
    const json = createButton("JSON", () => keep(
      new Blob([JSON.stringify({ picture: entry.picture.name, settings: entry.wish, ...answer }, null, 2)],
        { type: "application/json" }), `${stem}.json`));
    const png = answer.boxes === null ? null : createButton("PNG, word by word", async () => {
      png.disabled = true;
      try {
        keep(await draw(entry, answer.model, shown.head), `${stem}.png`);
      } catch (error) {
        complain(error.message);
      }
      png.disabled = false;
    });
    return html("div", { class: "downloads" }, json, png);
  }

  function headsOf({ heads }) {
    return heads === null ? null : { count: heads[0]?.length ?? 0, weights: (word, head) => heads[word][head] };
  }

  function createAnswer(entry, answer, shown, settings) {
    const host = html("div");
    const viewer = createAttentionViewer(host, {
      picture: { source: entry.address, description: `Picture ${entry.picture.name}` },
      boxes: answer.boxes ?? [],
      captions: answer.captions.map((caption, index) => ({
        name: answer.captions.length === 1 ? "caption" : `caption ${index + 1}`,
        colour: settings.colourOf(answer.model),
        words: caption.words,
        attention: caption.attention,
        heads: headsOf(caption),
        verdict: null,
        score: caption.score,
        scoreName: "log-probability",
        note: "",
        boxes: null,
      })),
    });
    const node = html("article", { class: "answer", "aria-label": `Captions by ${answer.model}` },
      html("h2", {}, answer.model, html("small", {}, `${answer.seconds.toFixed(2)} s`)), host,
      createDownloads(entry, answer, shown, settings));
    return { node, viewer };
  }

  return function createAnswers(entry, settings) {
    const shown = { head: null };
    const parts = entry.answers.map((answer) => createAnswer(entry, answer, shown, settings));
    const viewers = parts.map(({ viewer }) => viewer);
    if (viewers.some(({ heads }) => settings.chosen !== null && settings.chosen < heads)) shown.head = settings.chosen;
    const choice = createHeadChoice(viewers, {
      chosen: shown.head,
      heard: (head) => {
        shown.head = head;
        settings.heard(head);
      },
    });
    return html("div", {}, choice, html("div", { class: "answers" }, ...parts.map(({ node }) => node)));
  };
})();
