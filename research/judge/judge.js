"use strict";

// The page of `research/judge/run.py serve`: a judge gives a name, then chooses the better of two captions, pair after pair.
// Needs dom.js. The server knows which caption is whose; this page does not.

(() => {
  const KEYS = { 1: "left", ArrowLeft: "left", 2: "right", ArrowRight: "right", 0: "equal", "=": "equal" };
  const main = document.getElementById("main");
  const problem = html("p", { class: "problem", role: "alert", hidden: "" });
  const content = html("div");
  main.append(problem, content);
  const state = { judge: sessionStorage.getItem("judge") ?? "", question: null, busy: false };

  /** Send a request and show the question of the response; one request at a time, so that no choice counts twice. */
  async function send(path, fields = {}) {
    if (state.busy) return;
    state.busy = true;
    try {
      const body = JSON.stringify({ judge: state.judge, ...fields });
      const response = await fetch(path, { method: "POST", body, headers: { "Content-Type": "application/json" } })
        .catch(() => { throw new Error("the server does not respond; is it still running?"); });
      const answer = await response.json().catch(() => ({ detail: `the server returned status ${response.status}` }));
      if (!response.ok) throw new Error(answer.detail);
      problem.hidden = true;
      state.question = answer;
      show();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    } finally {
      state.busy = false;
    }
  }

  function choose(choice) {
    const choices = content.querySelector(".choices");
    if (choices !== null && !choices.disabled) send("/api/answer", { pair: state.question.pair, choice });
  }

  function createButton(key, text, style, onClick, label) {
    const node = html("button", { type: "button", class: style, "aria-label": label ?? null },
      key === null ? null : html("kbd", { "aria-hidden": "true" }, key), text);
    node.addEventListener("click", onClick);
    return node;
  }

  function showStart() {
    const input = html("input", { name: "judge", maxlength: 60, required: "", autocomplete: "off", value: state.judge });
    const form = html("form", { class: "start" }, html("label", {}, "Your name", input), html("button", {}, "Start"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      state.judge = input.value.trim();
      if (state.judge === "") return;
      sessionStorage.setItem("judge", state.judge);
      send("/api/next");
    });
    content.replaceChildren(
      html("p", { class: "lead" }, "For each image, choose the caption that describes it better, or neither. "
        + "Your answers are kept at once: with the same name you can stop and continue at any time."), form);
    input.focus();
  }

  /** The image with the choices, which wait until it is shown. */
  function showPair({ pair, left, right }) {
    const choices = html("fieldset", { class: "choices", disabled: "", "aria-label": "Choices" },
      createButton("1", left || "(no words)", "caption", () => choose("left"), `First caption is better: ${left}`),
      createButton("0", "equal", "equal", () => choose("equal"), "Both are equal"),
      createButton("2", right || "(no words)", "caption", () => choose("right"), `Second caption is better: ${right}`));
    const image = html("img", { class: "subject", alt: "The image that the captions describe" });
    image.addEventListener("load", () => { choices.disabled = false; });
    image.addEventListener("error", () => {
      problem.textContent = "The image cannot be shown; answer equal, and inform those who run the evaluation.";
      problem.hidden = false;
      choices.disabled = false;
    });
    image.src = `/api/images/${pair}`;
    return [image, choices];
  }

  function show() {
    const { pair, done, total } = state.question;
    const undo = createButton("U", "undo", "undo", () => send("/api/undo"), "Undo the last answer");
    undo.disabled = done === 0;
    const other = createButton(null, "change", "change", () => {
      sessionStorage.removeItem("judge");
      state.question = null;
      showStart();
    }, "Change the name");
    content.replaceChildren(
      ...(pair === null ? [html("p", { class: "lead" }, "That was the last pair. Thank you!")] : showPair(state.question)),
      html("div", { class: "status" },
        html("span", { class: "count", role: "status" }, `${done} of ${total}`),
        html("progress", { value: done, max: Math.max(total, 1), "aria-label": "Answered" }),
        undo, html("span", {}, `Judge: ${state.judge} `), other));
  }

  document.addEventListener("keydown", (event) => {
    if (state.question === null || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in KEYS) {
      event.preventDefault();
      choose(KEYS[event.key]);
    } else if (event.key.toLowerCase() === "u" || event.key === "Backspace") {
      if (state.question.done > 0) send("/api/undo");
    }
  });

  if (state.judge === "") showStart();
  else send("/api/next");
})();
