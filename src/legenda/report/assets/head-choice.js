"use strict";

// The attention that all viewers of a page show: the mean of all heads, or one head. Needs dom.js.
//
//   decodeHeads({count, largest, levels}, regions)   the heads of encode_attention.py for the viewer: {count, weights}
//   createHeadChoice(viewers, {head, onChange})      a select element; null where no caption has several heads
//
// `head` is the initial one, null for the mean; `onChange` is called with every later choice.

function decodeHeads({ count, largest, levels }, regions) {
  const bytes = Uint8Array.from(atob(levels), (character) => character.charCodeAt(0));
  return {
    count,
    weights(word, head) {
      const start = (word * count + head) * regions;
      return Array.from(bytes.subarray(start, start + regions), (byte) => (byte / 255) * largest[word][head]);
    },
  };
}

function createHeadChoice(viewers, { head: initial = null, onChange = () => {} } = {}) {
  const count = Math.max(0, ...viewers.map(({ heads }) => heads));
  if (count < 2) return null;
  const select = html("select", {}, html("option", { value: "" }, "all heads averaged"),
    ...Array.from({ length: count }, (_, head) => html("option", { value: head }, `head ${head}`)));
  function show(head) {
    for (const viewer of viewers) viewer.showHead(head);
  }
  if (initial !== null && initial < count) {
    select.value = initial;
    show(initial);
  }
  select.addEventListener("change", () => {
    const head = select.value === "" ? null : Number(select.value);
    show(head);
    onChange(head);
  });
  return html("label", { class: "choice" }, html("span", {}, "Attention"), select);
}
