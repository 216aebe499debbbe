"use strict";

// Filters and orders of the examples: by kind, mistakes, disagreement, score, length. Needs dom.js.
//
//   createExampleFilters(cards, entries, {names, scoreName, noun, further})
//
// fills `cards` with the cards of `entries`, [{kind, mistaken, disagreeing, captions, card}, ...], where `captions` maps
// names of models to {words, score}, and returns an element with the controls; `further` (an element or null) is one of
// them. `noun` names the entries in the plural. A control that would not distinguish any entries is left out.

const createExampleFilters = (() => {
  const QUANTILES = 4; // "the best" are the best quarter

  function mean(numbers) {
    return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  }

  function scoresOf(entry, names) {
    return names.map((name) => entry.captions[name]?.score ?? null).filter((score) => score !== null);
  }

  /** The quarter of the entries with the largest values, largest first; entries without a value are left out. */
  function leading(entries, valueOf) {
    const valued = entries.map((entry) => ({ entry, value: valueOf(entry) })).filter(({ value }) => value !== null);
    valued.sort((first, second) => second.value - first.value);
    return valued.slice(0, Math.ceil(valued.length / QUANTILES)).map(({ entry }) => entry);
  }

  function meanScore(entry, names) {
    const scores = scoresOf(entry, names);
    return scores.length === 0 ? null : mean(scores);
  }

  function negative(value) {
    return value === null ? null : -value;
  }

  function difference(entry, names) {
    const scores = scoresOf(entry, names);
    return scores.length < 2 ? null : Math.max(...scores) - Math.min(...scores);
  }

  /** The orders to choose from: [{label, choose}], where `choose` returns entries in order. */
  function createViews(entries, names, scoreName) {
    const views = [{ label: "all, in data set order", choose: () => entries }];
    if (!entries.some((entry) => scoresOf(entry, names).length > 0)) return views;
    const rankings = names.length > 1 ? [["", names], ...names.map((name) => [` of ${name}`, [name]])] : [["", names]];
    for (const [suffix, of] of rankings) {
      views.push(
        { label: `the best${suffix} by ${scoreName}`, choose: () => leading(entries, (entry) => meanScore(entry, of)) },
        { label: `the worst${suffix} by ${scoreName}`,
          choose: () => leading(entries, (entry) => negative(meanScore(entry, of))) });
    }
    if (names.length > 1) {
      views.push({ label: `the most different by ${scoreName}`,
        choose: () => leading(entries, (entry) => difference(entry, names)) });
    }
    return views;
  }

  function lengthOf(entry) {
    const lengths = Object.values(entry.captions).map(({ words }) => words.length);
    return lengths.length === 0 ? 0 : Math.max(...lengths);
  }

  /** Thirds of the entries by the length of the longest caption: [{label, holds}]. */
  function createLengths(entries) {
    const lengths = entries.map(lengthOf).sort((first, second) => first - second);
    const [shortest, longest] = [lengths[0], lengths[lengths.length - 1]];
    const short = lengths[Math.floor((lengths.length - 1) / 3)];
    const long = Math.max(lengths[Math.ceil((2 * lengths.length) / 3)] ?? longest, short + 1);
    const any = { label: "any length", holds: () => true };
    if (shortest === longest) return [any];
    const parts = [
      { label: `up to ${short} words`, holds: (entry) => lengthOf(entry) <= short },
      { label: long - short === 2 ? `${short + 1} words` : `${short + 1} to ${long - 1} words`,
        holds: (entry) => lengthOf(entry) > short && lengthOf(entry) < long },
      { label: `${long} words and more`, holds: (entry) => lengthOf(entry) >= long },
    ];
    return [any, ...parts.filter(({ holds }) => entries.some(holds))];
  }

  function createButton(label) {
    const count = html("span", { class: "count" });
    return { node: html("button", { type: "button", "aria-pressed": "false" }, `${label} `, count), count };
  }

  /** A labeled select element; null for a single option. */
  function createSelect(label, options, onChange) {
    if (options.length < 2) return null;
    const select = html("select", {}, ...options.map((option, index) => html("option", { value: index }, option.label)));
    select.addEventListener("change", () => onChange(options[Number(select.value)]));
    return html("label", { class: "choice" }, html("span", {}, label), select);
  }

  return function createExampleFilters(cards, entries, { names, scoreName, noun, further }) {
    const views = createViews(entries, names.filter((name) => entries.some((entry) => scoresOf(entry, [name]).length > 0)), scoreName);
    const lengths = createLengths(entries);
    const chosen = { view: views[0], length: lengths[0], kind: null, mistaken: false, disagreeing: false };
    const kinds = [...new Set(entries.map(({ kind }) => kind))];
    const all = { kind: null, ...createButton("all") };
    const named = kinds.length < 2 ? [] : kinds.map((kind) => ({ kind, ...createButton(kind || "no kind") }));
    const mistakes = entries.filter(({ mistaken }) => mistaken).length;
    const toggles = [
      ...(mistakes > 0 && mistakes < entries.length ? [{ property: "mistaken", ...createButton("mistakes") }] : []),
      ...(names.length > 1 ? [{ property: "disagreeing", ...createButton("models disagree") }] : []),
    ];
    const status = html("p", { class: "status", role: "status" });
    let ordered = entries;

    function matching({ kind, mistaken, disagreeing }) {
      return ordered.filter((entry) => (kind === null || entry.kind === kind) && (!mistaken || entry.mistaken) &&
        (!disagreeing || entry.disagreeing) && chosen.length.holds(entry));
    }

    function update() {
      const kept = new Set(matching(chosen));
      for (const entry of entries) entry.card.hidden = !kept.has(entry);
      for (const button of [all, ...named]) {
        button.node.setAttribute("aria-pressed", String(button.kind === chosen.kind));
        button.count.textContent = matching({ ...chosen, kind: button.kind }).length;
      }
      for (const toggle of toggles) {
        toggle.node.setAttribute("aria-pressed", String(chosen[toggle.property]));
        toggle.count.textContent = matching({ ...chosen, [toggle.property]: true }).length;
      }
      status.textContent = `${kept.size} of ${entries.length} ${noun}`;
    }

    function reorder() {
      ordered = chosen.view.choose();
      const rest = entries.filter((entry) => !ordered.includes(entry));
      cards.append(...[...ordered, ...rest].map(({ card }) => card));
      update();
    }

    for (const button of [all, ...named]) {
      button.node.addEventListener("click", () => {
        chosen.kind = button.kind;
        update();
      });
    }
    for (const toggle of toggles) {
      toggle.node.addEventListener("click", () => {
        chosen[toggle.property] = !chosen[toggle.property];
        update();
      });
    }
    reorder();
    return html("div", { class: "filters", role: "group", "aria-label": "Filter the examples" },
      createSelect("Show", views, (view) => {
        chosen.view = view;
        reorder();
      }),
      createSelect("Length", lengths, (length) => {
        chosen.length = length;
        update();
      }),
      further,
      all.node, ...[...named, ...toggles].map(({ node }) => node), status);
  };
})();
