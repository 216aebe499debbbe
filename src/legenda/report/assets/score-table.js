"use strict";

// Draws the table from the embedded data: a body for each row, with the reported and the measured scores.

(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);

  function createHead() {
    const metrics = data.metrics.map((metric) => html("th", { scope: "col" }, metric));
    return html("thead", {},
      html("tr", {},
        html("th", { scope: "col" }, "row"),
        html("th", { scope: "col", class: "source" }, "scores of"),
        ...metrics));
  }

  function createRow(row) {
    const label = html("th", { scope: "rowgroup", rowspan: row.lines.length }, row.label,
      row.note === "" ? null : html("span", { class: "note" }, row.note));
    return html("tbody", {}, ...row.lines.map(([source, scores], index) => html("tr", { class: source },
      index === 0 ? label : null,
      html("td", { class: "source" }, source),
      ...scores.map((score) => html("td", {}, score)))));
  }

  document.getElementById("scores").append(
    html("div", { class: "scroll", tabindex: 0 }, html("table", {}, createHead(), ...data.rows.map(createRow))));

  const notes = document.getElementById("notes");
  notes.hidden = data.notes.length === 0;
  notes.append(...data.notes.map((note) => html("p", {}, note)));
})();
