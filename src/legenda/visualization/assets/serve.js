"use strict";

// The page of `legenda serve`: a picture and settings, the captions of the chosen models side by side, earlier ones.
// Needs dom.js and serve-answers.js. Pictures go to this server alone; the history lives in this page only.

(() => {
  const { models, samples } = JSON.parse(document.getElementById("page-data").textContent);
  const COLOURS = 6; // theme.css holds --model-0 to --model-5
  const MOST_KEPT = 24;
  const result = document.getElementById("result");
  const earlier = [];
  const state = { picture: null, address: null, head: null, turn: 0 }; // of several requests, the latest is shown

  function colourOf(name) {
    return `var(--model-${models.findIndex((model) => model.name === name) % COLOURS})`;
  }

  function button(text, heard, kind = "action") {
    const node = html("button", { type: "button", class: kind }, text);
    node.addEventListener("click", heard);
    return node;
  }

  function complain(text) {
    result.replaceChildren(html("p", { class: "problem", role: "alert" }, text));
  }

  // ---- what is asked

  function createNumber(label, name, value, limits) {
    const input = html("input", { type: "number", name, value, ...limits });
    return { node: html("label", {}, html("span", {}, label), input), name, value: () => input.value };
  }

  const numbers = [
    createNumber("beam", "beam_size", 3, { min: 1, max: 20, step: 1 }),
    createNumber("captions", "captions", 1, { min: 1, max: 10, step: 1 }),
    createNumber("temperature (0: search)", "temperature", 0, { min: 0, max: 5, step: 0.1 }),
    createNumber("seed", "seed", 0, { min: 0, max: 2147483647, step: 1 }),
  ];

  const boxes = models.map(({ name, summary }, index) => {
    const input = html("input", { type: "checkbox", value: name, ...(index < 2 ? { checked: "" } : {}) });
    return { name, input, node: html("label", { title: summary }, input, ` ${name}`) };
  });

  function chosenModels() {
    return boxes.filter(({ input }) => input.checked).map(({ name }) => name);
  }

  function settings() {
    return Object.fromEntries(numbers.map(({ name, value }) => [name, value()]));
  }

  function formOf(picture, model, wish) {
    const form = new FormData();
    form.append("picture", picture, picture.name ?? "picture");
    form.append("model", model);
    for (const [name, value] of Object.entries(wish)) form.append(name, value);
    return form;
  }

  /** The answer of the server, or an error that carries its sentence. */
  async function post(path, form) {
    let answer;
    try {
      answer = await fetch(path, { method: "POST", body: form });
    } catch {
      throw new Error("the server does not answer; is it still running?");
    }
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
    throw new Error(told.detail);
  }

  // ---- what is answered

  async function draw(entry, model, head) {
    const wish = head === null ? entry.wish : { ...entry.wish, head };
    const sheet = await post("/api/attention.png", formOf(entry.picture, model, wish));
    return sheet.blob();
  }

  function show(entry) {
    result.replaceChildren(createAnswers(entry, {
      colourOf,
      draw,
      complain,
      chosen: state.head,
      heard: (head) => {
        state.head = head;
      },
    }));
  }

  function showHistory() {
    const section = document.getElementById("history");
    section.hidden = false;
    section.querySelector(".history")?.remove();
    section.append(html("div", { class: "history" }, ...earlier.map((entry) => {
      const node = button("", () => show(entry), "thumb");
      node.append(html("img", { src: entry.address, alt: entry.picture.name }),
        html("span", {}, entry.answers[0].captions[0]?.text ?? "no words"));
      return node;
    })));
  }

  async function ask() {
    const names = chosenModels();
    if (state.picture === null) return complain("Give a picture first: drop one, paste one, or choose a sample.");
    if (names.length === 0) return complain("Choose at least one model.");
    const turn = state.turn + 1;
    state.turn = turn;
    result.replaceChildren(html("p", {}, "Looking ..."));
    const entry = { picture: state.picture, address: state.address, wish: settings() };
    try {
      entry.answers = await Promise.all(names.map(async (name) => {
        const answer = await post("/api/captions", formOf(entry.picture, name, { ...entry.wish, heads: true }));
        return answer.json();
      }));
      if (turn === state.turn) show(entry);
      earlier.unshift(entry);
      const gone = earlier.splice(MOST_KEPT).map(({ address }) => address);
      for (const address of gone) {
        if (earlier.every((kept) => kept.address !== address)) URL.revokeObjectURL(address);
      }
      showHistory();
    } catch (error) {
      if (turn === state.turn) complain(error.message);
    }
    return undefined;
  }

  function take(file) {
    state.picture = file;
    state.address = URL.createObjectURL(file);
    ask();
  }

  async function takeSample(name) {
    const answer = await fetch(`/api/samples/${encodeURIComponent(name)}`);
    if (!answer.ok) return complain("the server does not give this sample any more");
    const data = await answer.blob();
    return take(new File([data], name, { type: data.type }));
  }

  function createDrop() {
    const input = html("input", { type: "file", accept: "image/*", class: "unseen", tabindex: -1, "aria-hidden": "true" });
    input.addEventListener("change", () => {
      if (input.files.length > 0) take(input.files[0]);
      input.value = "";
    });
    const zone = html("div", { class: "drop" }, html("p", {}, "Drop a picture here, paste one, or"),
      button("choose a file", () => input.click()), input);
    zone.addEventListener("dragover", (event) => {
      event.preventDefault();
      zone.classList.add("is-over");
    });
    zone.addEventListener("dragleave", () => zone.classList.remove("is-over"));
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      zone.classList.remove("is-over");
      if (event.dataTransfer.files.length > 0) take(event.dataTransfer.files[0]);
    });
    document.addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])][0];
      if (file !== undefined) take(file);
    });
    return zone;
  }

  function createSamples() {
    if (samples.length === 0) return null;
    return html("div", { class: "samples", role: "group", "aria-label": "Samples" }, ...samples.map((name) => {
      const node = button("", () => takeSample(name), "thumb");
      node.append(html("img", { src: `/api/samples/${encodeURIComponent(name)}`, alt: `Sample ${name}`, loading: "lazy" }));
      return node;
    }));
  }

  document.getElementById("ask").append(createDrop(), createSamples() ?? "",
    html("div", { class: "settings" },
      html("fieldset", {}, html("legend", {}, "models"), ...boxes.map(({ node }) => node)),
      ...numbers.map(({ node }) => node), button("Caption", ask)));
})();
