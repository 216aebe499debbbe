"use strict";

// Which attention all viewers of a page show: the mean of all heads, or one. Needs dom.js.
//
//   unpackHeads({count, largest, shares}, regions)   what heads.py packed, as the viewer wants it: {count, weights}
//   createHeadChoice(viewers, {chosen, heard})       the list to choose from; null where no caption has several heads
//
// `chosen` is the head to begin with, null for the mean; `heard` is told of every other choice.

function unpackHeads({ count, largest, shares }, regions) {
  const bytes = Uint8Array.from(atob(shares), (sign) => sign.charCodeAt(0));
  return {
    count,
    weights(word, head) {
      const start = (word * count + head) * regions;
      return Array.from(bytes.subarray(start, start + regions), (byte) => (byte / 255) * largest[word][head]);
    },
  };
}

function createHeadChoice(viewers, { chosen = null, heard = () => {} } = {}) {
  const most = Math.max(0, ...viewers.map(({ heads }) => heads));
  if (most < 2) return null;
  const select = html("select", {}, html("option", { value: "" }, "all heads averaged"),
    ...Array.from({ length: most }, (_, head) => html("option", { value: head }, `head ${head}`)));
  function show(head) {
    for (const viewer of viewers) viewer.showHead(head);
  }
  if (chosen !== null && chosen < most) {
    select.value = chosen;
    show(chosen);
  }
  select.addEventListener("change", () => {
    const head = select.value === "" ? null : Number(select.value);
    show(head);
    heard(head);
  });
  return html("label", { class: "choice" }, html("span", {}, "Attention"), select);
}
