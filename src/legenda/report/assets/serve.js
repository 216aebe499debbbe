"use strict";

// The page of `legenda serve`: images and settings, the captions of the selected models side by side, and a history.
// Needs dom.js and serve-results.js. Images are sent to this server only; the history is kept in this page only.

(() => {
  const { models, samples, search, max_bytes: maxBytes } = JSON.parse(document.getElementById("page-data").textContent);
  const COLORS = 8; // theme.css defines --model-0 to --model-7
  const MAX_HISTORY = 24;
  const resultSection = document.getElementById("result");
  const history = [];
  const state = { images: [], shown: [], head: null, request: 0 }; // of several requests, the latest is shown

  const TILE = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 4 3'><path fill='gray' d='M0 0h4v3H0z'/></svg>";
  document.addEventListener("error", ({ target }) => { // images that the server reads and the browser does not (HEIC)
    if (target instanceof HTMLImageElement && target.src.startsWith("blob:")) {
      target.src = `data:image/svg+xml,${encodeURIComponent(TILE)}`;
      if (target.closest(".attention-stage")) {
        target.after(html("p", { class: "undrawn" }, "The server reads this image; this browser cannot draw it."));
      }
    }
  }, true);

  function colorOf(name) {
    return `var(--model-${models.findIndex((model) => model.name === name) % COLORS})`;
  }

  function createProblem(text) {
    return html("p", { class: "problem", role: "alert" }, text);
  }

  function showError(text) {
    resultSection.replaceChildren(createProblem(text));
  }

  // ---- settings and requests

  function createNumber(label, name, value, limits) {
    const input = html("input", { type: "number", name, value, ...limits });
    return { node: html("label", {}, html("span", {}, label), input), name, value: () => input.value };
  }

  const numbers = [
    createNumber("beam size", "beam_size", search.beam_size, { min: 1, max: 20, step: 1 }),
    createNumber("captions", "num_captions", 1, { min: 1, max: 10, step: 1 }),
    createNumber("temperature (0: beam search)", "temperature", search.temperature, { min: 0, max: 5, step: 0.1 }),
    createNumber("seed", "seed", search.seed, { min: 0, max: 2147483647, step: 1 }),
  ];

  const [beamSize, numCaptions] = numbers.map(({ node }) => node.querySelector("input"));
  numCaptions.addEventListener("change", () => {
    beamSize.value = Math.max(beamSize.value, numCaptions.value); // a beam search returns no more
  });

  const checkboxes = models.map(({ name, summary }, index) => {
    const input = html("input", { type: "checkbox", value: name, ...(index < 2 ? { checked: "" } : {}) });
    return { name, input, node: html("label", { title: summary }, input, ` ${name}`, html("small", {}, summary)) };
  });

  function selectedModels() {
    return checkboxes.filter(({ input }) => input.checked).map(({ name }) => name);
  }

  function readSettings() {
    return Object.fromEntries(numbers.map(({ name, value }) => [name, value()]));
  }

  function createForm(image, model, settings) {
    const form = new FormData();
    form.append("image", image, image.name ?? "image");
    form.append("model", model);
    for (const [name, value] of Object.entries(settings)) form.append(name, value);
    return form;
  }

  /** The response of the server; throws an error with its message. */
  async function post(path, form) {
    let response;
    try {
      response = await fetch(path, { method: "POST", body: form });
    } catch {
      throw new Error("the server does not respond; is it still running?");
    }
    if (response.ok) return response;
    const { detail } = await response.json().catch(() => ({ detail: `the server returned status ${response.status}` }));
    throw new Error(detail);
  }

  async function draw(entry, model) {
    const settings = state.head === null ? entry.settings : { ...entry.settings, head: state.head };
    const response = await post("/api/attention.png", createForm(entry.image, model, settings));
    return response.blob();
  }

  // ---- results and history

  /** Show the tools for the images that are shown, and their captions in place of `node`, or below the others. */
  function show(entry, node = null) {
    const results = createResults(entry, { colorOf, draw, showError, head: state.head });
    if (node === null) resultSection.append(results);
    else node.replaceWith(results);
    state.shown.push({ entry, viewers: results.viewers });
    const entries = state.shown.map((part) => part.entry);
    resultSection.querySelector(".tools")?.remove();
    resultSection.prepend(createTools(entries, state.shown.flatMap(({ viewers }) => viewers), {
      head: state.head,
      onHeadChange: (head) => {
        state.head = head;
      },
    }));
  }

  function clear() {
    state.shown = [];
    resultSection.classList.remove("has-unsure");
    resultSection.replaceChildren();
  }

  function scrollToResults() {
    resultSection.scrollIntoView({ block: window.innerWidth < 900 ? "start" : "nearest" });
  }

  function showHistory() {
    const section = document.getElementById("history");
    section.hidden = false;
    section.querySelector(".history")?.remove();
    section.append(html("div", { class: "history" }, ...history.map((entry) => {
      const node = createButton("", () => {
        clear();
        show(entry);
        scrollToResults();
      }, "thumb");
      node.append(html("img", { src: entry.url, alt: entry.image.name }),
        html("span", {}, asSentence(entry.results[0].captions[0]?.text ?? "no words")));
      return node;
    })));
  }

  /** The image with the progress of its requests: {node, advance}, where advance() counts one finished model. */
  function createProgress(entry, names) {
    const start = performance.now();
    const bar = html("progress", { "aria-label": "Captioning", ...(names.length > 1 ? { value: 0, max: names.length } : {}) });
    const seconds = html("span", { class: "count", "aria-hidden": "true" });
    const node = html("article", { class: "working" },
      html("h2", {}, `Captioning with ${names.join(", ")} `, seconds), bar, html("img", { src: entry.url, alt: "" }));
    const timer = setInterval(() => {
      if (!node.isConnected) clearInterval(timer);
      seconds.textContent = `${((performance.now() - start) / 1000).toFixed(1)} s`;
    }, 100);
    return { node, advance: () => { if (names.length > 1) bar.value += 1; } };
  }

  function remember(entry) {
    history.unshift(entry);
    const removed = history.splice(MAX_HISTORY).map(({ url }) => url);
    for (const url of removed) {
      if (history.every((other) => other.url !== url)) URL.revokeObjectURL(url);
    }
    showHistory();
  }

  /** Caption an image by all models, and remember it; return what is wrong with it, or null. */
  async function caption(entry, names, advance) {
    const name = entry.image.name;
    if (entry.image.size > maxBytes) return createProblem(`${name} is too large; send at most ${maxBytes / 1e6} MB`);
    try {
      entry.results = await Promise.all(names.map(async (model) => {
        const response = await post("/api/captions", createForm(entry.image, model, { ...entry.settings, heads: true, preview: true }));
        const { preview, ...result } = await response.json();
        if (preview !== null) entry.url = preview;
        advance();
        return result;
      }));
    } catch (error) {
      return createProblem(error.message);
    }
    remember(entry);
    return null;
  }

  async function submit() {
    const names = selectedModels();
    if (state.images.length === 0) return showError("Choose an image first: drop one, paste one, or select a sample.");
    if (names.length === 0) return showError("Select at least one model.");
    const request = state.request + 1;
    state.request = request;
    const settings = readSettings();
    const entries = state.images.map((image) => ({ ...image, settings }));
    clear();
    for (const entry of entries) {
      const progress = createProgress(entry, names);
      resultSection.append(progress.node);
      if (entry === entries[0]) scrollToResults();
      const problem = await caption(entry, names, progress.advance);
      if (request !== state.request) return undefined;
      if (problem === null) show(entry, progress.node);
      else progress.node.replaceWith(problem);
      if (entry === entries[0]) scrollToResults(); // it is higher than its progress
    }
    return undefined;
  }

  // ---- images

  function setImages(files) {
    if (files.length === 0) return;
    state.images = [...files].map((image) => ({ image, url: URL.createObjectURL(image) }));
    submit();
  }

  async function setSample(name) {
    const response = await fetch(`/api/samples/${encodeURIComponent(name)}`);
    if (!response.ok) return showError("the server no longer has this sample");
    const data = await response.blob();
    return setImages([new File([data], name, { type: data.type })]);
  }

  function createChooser() {
    const input = html("input", {
      type: "file", accept: "image/*", multiple: "", class: "unseen", tabindex: -1, "aria-hidden": "true",
    });
    input.addEventListener("change", () => {
      setImages(input.files);
      input.value = "";
    });
    return html("div", { class: "drop" }, createButton("Choose images", () => input.click()),
      html("p", {}, "or drop or paste them"), input);
  }

  /** Take images that are dropped anywhere on the page: elsewhere than here, the browser would open them instead. */
  function acceptDrops() {
    const mark = (isOver) => document.body.classList.toggle("is-over", isOver);
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      mark(true);
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) mark(false);
    });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      mark(false);
      setImages(event.dataTransfer.files);
    });
    document.addEventListener("paste", (event) => setImages(event.clipboardData?.files ?? []));
  }

  function createSamples() {
    if (samples.length === 0) return null;
    return html("div", { class: "samples", role: "group", "aria-label": "Samples" }, ...samples.map((name) => {
      const node = createButton("", () => setSample(name), "thumb");
      node.append(html("img", { src: `/api/samples/${encodeURIComponent(name)}`, alt: `Sample ${name}`, loading: "lazy" }));
      return node;
    }));
  }

  document.getElementById("input").append(createChooser(), createSamples() ?? "",
    html("fieldset", {}, html("legend", {}, "models"), ...checkboxes.map(({ node }) => node), createButton("Caption", submit, "action quiet")),
    html("details", { class: "search", ...(window.innerWidth >= 900 ? { open: "" } : {}) }, html("summary", {}, "search settings"),
      html("div", { class: "settings" }, ...numbers.map(({ node }) => node))));
  resultSection.append(html("p", { class: "empty" }, "The captions appear here."));
  acceptDrops();
})();
