"use strict";

// Builds the page from its embedded data: table, examples, footnotes. Needs dom.js and the attention viewer.

(() => {
  const COLORS = 8; // theme.css holds --model-0 to --model-7
  const DASH = "—";
  const FIRST = 4; // examples above the scores

  function colorOf(index) {
    return `var(--model-${index % COLORS})`;
  }

  function section(id) {
    const node = document.getElementById(id);
    node.hidden = false;
    return node;
  }

  // ---- scores

  function createModelList(runs) {
    return html("dl", { class: "models" }, ...runs.map((run, index) => {
      const node = html("div", {},
        html("dt", {}, html("span", { class: "swatch", "aria-hidden": "true" }), run.name),
        html("dd", {}, [run.description, describeSize(run)].filter(Boolean).join(", ")));
      node.style.setProperty("--model", colorOf(index));
      return node;
    }));
  }

  function columnFormatter(column, runs) {
    if (column.percent) return (value) => `${(value * 100).toFixed(1)} %`;
    const largest = Math.max(0, ...runs.map((run) => Math.abs(run.scores[column.key] ?? 0)));
    const digits = largest >= 100 ? 1 : largest >= 10 ? 2 : 3;
    return (value) => value.toFixed(digits);
  }

  /** The cells of one column; those that are equal to the best as displayed are marked, unless all are. */
  function createScoreCells(column, runs) {
    const format = columnFormatter(column, runs);
    const known = runs.map((run) => run.scores[column.key]).filter((value) => value !== null);
    const differ = new Set(known.map(format)).size > 1;
    const best = differ ? format((column.lower_is_better ? Math.min : Math.max)(...known)) : null;
    return runs.map((run, index) => {
      const value = run.scores[column.key];
      const cell = html("td");
      cell.style.setProperty("--model", colorOf(index));
      if (value === null) {
        cell.append(DASH);
        return cell;
      }
      const text = format(value);
      cell.append(text === best
        ? html("strong", {}, text, html("span", { class: "unseen" }, " (best)"))
        : text);
      const [low, high] = run.intervals[column.key] ?? [null, null];
      if (low !== null) {
        cell.append(html("span", { class: "interval" },
          html("span", { class: "unseen" }, ", interval "), `${format(low).replace(" %", "")} – ${format(high)}`));
      }
      if (column.percent) cell.append(createBar(value));
      return cell;
    });
  }

  function createBar(share) {
    const fill = html("span");
    fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    return html("span", { class: "bar", "aria-hidden": "true" }, fill);
  }

  function readableCount(count) {
    if (count >= 1e6) return `${(count / 1e6).toFixed(2)} M`;
    if (count >= 1e4) return `${(count / 1e3).toFixed(0)} k`;
    return count.toLocaleString("en-GB");
  }

  function readableTime(seconds) {
    if (seconds < 99.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
    const minutes = Math.floor(Math.round(seconds) / 60);
    if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function describeSize({ parameters, seconds }) {
    if (parameters === null) return "";
    const size = `${readableCount(parameters)} parameters`;
    return seconds === null ? size : `${size}, trained in ${readableTime(seconds)}`;
  }

  function createModelHead(run, index) {
    const cell = html("th", { scope: "col" }, html("span", { class: "swatch", "aria-hidden": "true" }), run.name);
    cell.style.setProperty("--model", colorOf(index));
    return cell;
  }

  /** One score by groups of examples: a row for each group, a column for each model. */
  function createBreakdown({ title, rows }, runs, noun) {
    const head = html("tr", {}, html("th", { scope: "col" }, title), html("th", { scope: "col" }, noun),
      ...runs.map(createModelHead));
    return html("div", { class: "scroll breakdown", role: "region", "aria-label": `Scores by ${title}`, tabindex: 0 },
      html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows.map(({ key, label, count }) => html("tr", {},
        html("th", { scope: "row" }, label), html("td", { class: "count" }, count.toLocaleString("en-GB")),
        ...createScoreCells({ key, percent: true }, runs))))));
  }

  /** The differences of the other models from the first one: a row for each model, a column for each score. */
  function createDifferences(columns, runs) {
    const title = `difference from ${runs[0].name}`;
    const others = runs.filter((run) => Object.keys(run.differences).length > 0);
    if (others.length === 0) return "";
    const sign = (value, text) => (value < 0 ? text.replace("-", "\u2212") : `+${text}`);
    const cells = columns.map((column) => {
      const formatScore = columnFormatter(column, runs);
      const format = (value) => formatScore(value).replace(" %", " points"); // differences of shares
      return others.map((run) => {
        const found = run.differences[column.key];
        if (found === undefined) return html("td", {}, DASH);
        const { difference, low, high, p } = found;
        return html("td", {}, sign(difference, format(difference)),
          html("span", { class: "interval" }, `${sign(low, format(low)).replace(" points", "")} to ${sign(high, format(high))}`),
          html("span", { class: "interval" }, `p ${p.toFixed(3)}`));
      });
    });
    const rows = others.map((run, index) => html("tr", {}, html("th", { scope: "row" }, run.name),
      ...cells.map((column) => column[index])));
    const head = html("tr", {}, html("th", { scope: "col" }, title),
      ...columns.map((column) => html("th", { scope: "col" }, column.label)));
    return html("div", { class: "scroll differences", role: "region", "aria-label": title, tabindex: 0 },
      html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
  }

  function hasScores(run) {
    return Object.values(run.scores).some((value) => value !== null);
  }

  function renderScores({ about, columns, runs, breakdowns, noun }) {
    if (about !== "") section("scores").append(html("p", { class: "hint" }, about));
    if (!runs.some(hasScores)) {
      document.getElementById("scores-title").textContent = runs.length > 1 ? "Models" : "Model";
      section("scores").append(createModelList(runs));
      return;
    }
    const scores = columns.map((column) => createScoreCells(column, runs));
    const table = html("table", { "aria-describedby": "explanations" },
      html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "Model"),
        ...columns.map((column) => html("th", { scope: "col" }, column.label)))),
      html("tbody", {}, ...runs.map((run, index) => (!hasScores(run) ? "" : html("tr", {},
        html("th", { scope: "row" }, run.name),
        ...scores.map((cells) => cells[index]))))));
    section("scores").append(
      createModelList(runs),
      html("div", { class: "scroll", role: "region", "aria-labelledby": "scores-title", tabindex: 0 }, table),
      html("dl", { class: "explanations", id: "explanations" },
        ...columns.map((column) => html("div", {}, html("dt", {}, column.label), html("dd", {}, column.explanation))),
        runs.length > 1 ? html("div", {}, html("dt", {}, "bold"), html("dd", {}, "the best of the column")) : null,
        runs.some((run) => Object.keys(run.intervals).length > 0)
          ? html("div", {}, html("dt", {}, "small"),
            html("dd", {}, `95 % confidence interval over ${noun}`))
          : null),
      createDifferences(columns, runs),
      breakdowns.length === 0 ? ""
        : html("div", { class: "breakdowns" }, ...breakdowns.map((breakdown) => createBreakdown(breakdown, runs, noun))));
  }

  // ---- boxes: the reference box, dashed, and the predicted box of each model in its color

  const [WIDTH_STEP, HALO, DASH_WIDTH] = [2, 2, 1.5]; // CSS pixels

  function outline([x1, y1, x2, y2], width, style) {
    return svg("rect", {
      x: x1 * 100, y: y1 * 100, width: (x2 - x1) * 100, height: (y2 - y1) * 100, class: style, "stroke-width": width,
    });
  }

  /**
   * An SVG element to lay over the image; null without any box. Boxes are [x1, y1, x2, y2] in 0..1 of the image; those
   * of earlier models are drawn wider, and the reference on top, so that boxes that coincide all stay visible.
   */
  function createBoxMarks(reference, predictions) {
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
  }

  // ---- examples

  function createFacts(facts) {
    if (facts.length === 0) return null;
    return html("dl", { class: "facts" },
      ...facts.flatMap(([label, text]) => [html("dt", {}, label), html("dd", {}, text)]));
  }

  function createCard(example, runs, { scoreName, verdicts }) {
    const host = html("div");
    const predictions = runs.flatMap((run, index) => {
      const box = example.captions[run.name]?.box ?? null;
      return box === null ? [] : [{ box, color: colorOf(index) }];
    });
    const viewer = createAttentionViewer(host, {
      image: example.image === null ? null
        : { source: example.image, description: `Image ${example.id}` },
      boxes: example.boxes,
      drawing: createBoxMarks(example.box, predictions),
      captions: runs.flatMap((run, index) => {
        if (!Object.hasOwn(example.captions, run.name)) return [];
        const caption = example.captions[run.name];
        const heads = caption.heads && decodeHeads(caption.heads, (caption.boxes ?? example.boxes).length);
        return [{ ...caption, heads, scoreName, verdicts, name: run.name, color: colorOf(index) }];
      }),
    });
    const references = example.references.length === 0 ? null
      : html("details", {},
        html("summary", {}, example.references.length === 1 ? "1 reference" : `${example.references.length} references`),
        html("ul", {}, ...example.references.map((reference) => html("li", {}, reference))));
    const card = html("article", { class: "card", "aria-label": `Example ${example.id}` },
      html("header", {}, html("span", { class: "example-id" }, example.id),
        example.kind === "" ? null : html("span", { class: "kind" }, example.kind)),
      createFacts(example.facts), host, references);
    return { card, viewer };
  }

  /** How to read and use the images. */
  function createHint(examples) {
    if (examples.some((example) => example.box !== null)) {
      return html("p", { class: "hint" },
        "The dashed box is the reference; the box of each model has the color next to its name.");
    }
    const readable = examples.some((example) => Object.values(example.captions).some(({ attention }) => attention !== null));
    return readable ? html("p", { class: "hint" },
      "Point at a word to see which regions it attended to, the largest weight in red; click it to keep them.") : null;
  }

  function renderExamples({ examples, runs, scoreName, noun, verdicts }) {
    if (examples.length === 0) return;
    const entries = examples.map((example) => createCard(example, runs, { scoreName, verdicts }));
    const heads = createHeadChoice(entries.map(({ viewer }) => viewer));
    const count = html("p", { class: "status" }, `${examples.length} ${examples.length === 1 ? noun.replace(/s$/, "") : noun}`);
    const cards = entries.map(({ card }) => card);
    section("examples").append(createHint(examples) ?? "", html("div", { class: "choices" }, heads, count),
      html("div", { class: "cards" }, ...cards.slice(0, FIRST)));
    if (cards.length > FIRST) section("more").append(html("div", { class: "cards" }, ...cards.slice(FIRST)));
  }

  function renderFootnotes({ footnotes }) {
    if (footnotes.length > 0) section("footnotes").append(...footnotes.map((note) => html("p", {}, note)));
  }

  const data = JSON.parse(document.getElementById("page-data").textContent);
  renderExamples(data);
  renderScores(data);
  renderFootnotes(data);
})();
