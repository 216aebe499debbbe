"use strict";

// A small line chart with axes, ticks and a legend with the values at the pointer. Needs dom.js.
//
//   createCurveChart(host, {title, series: [{name, color, dash, points: [[step, value or null], ...]}, ...]});
//
// Points come in the order of their steps; a null value leaves a gap.

const createCurveChart = (() => {
  const WIDTH = 360;
  const HEIGHT = 220;
  const EDGE = { left: 54, right: 22, top: 10, bottom: 42 };

  function isMeasured([, value]) {
    return value !== null;
  }

  /** A step of 1, 2, 2.5 or 5 times a power of ten that makes about `count` intervals. */
  function roundStep(low, high, count) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999);
  }

  function ticksBetween(low, high, count) {
    const step = roundStep(low, high, count);
    const ticks = [];
    for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) {
      ticks.push(index * step + 0); // + 0 turns -0 into 0
    }
    return { ticks, step };
  }

  /** The range of some numbers, from zero when zero is near; never empty. */
  function rangeOf(numbers) {
    const smallest = Math.min(...numbers);
    const largest = Math.max(...numbers);
    const low = smallest >= 0 && smallest < largest / 2 ? 0 : smallest;
    if (largest > low) return [low, largest];
    const margin = Math.abs(low) / 2 || 1;
    return [low - margin, largest + margin];
  }

  /** The same, extended to round numbers. */
  function roundRangeOf(numbers) {
    const [low, high] = rangeOf(numbers);
    const step = roundStep(low, high, 4);
    return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  }

  function formatter(step) {
    const digits = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9) + (/25$/.test(String(step)) ? 1 : 0)));
    const format = new Intl.NumberFormat("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return (value) => format.format(value);
  }

  function linear([low, high], [from, to]) {
    return (value) => from + ((value - low) / (high - low)) * (to - from);
  }

  function linePath(points, x, y) {
    let pen = "M";
    const parts = [];
    for (const [step, value] of points) {
      if (value === null) {
        pen = "M";
        continue;
      }
      parts.push(`${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`);
      pen = "L";
    }
    return parts.join("");
  }

  function drawAxes(x, y, steps, values) {
    const bottom = HEIGHT - EDGE.bottom;
    const format = { x: formatter(steps.step), y: formatter(values.step) };
    return svg("g", { class: "chart-axes" },
      ...values.ticks.flatMap((tick) => [
        svg("line", { class: "chart-grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(tick), y2: y(tick) }),
        svg("text", { x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, format.y(tick)),
      ]),
      svg("line", { class: "chart-base", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: bottom, y2: bottom }),
      ...steps.ticks.flatMap((tick) => [
        svg("line", { class: "chart-base", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }),
        svg("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, format.x(tick)),
      ]),
      svg("text", { x: (EDGE.left + WIDTH - EDGE.right) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, "step"));
  }

  function describe(title, series) {
    const ends = series.map(({ name, points }) => {
      const measured = points.filter(isMeasured);
      const [first, last] = [measured[0], measured[measured.length - 1]];
      return `${name} from ${readable(first[1])} at step ${first[0]} to ${readable(last[1])} at step ${last[0]}`;
    });
    return `${title}: ${ends.join("; ")}`;
  }

  function readable(value) {
    return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
  }

  function drawSeries({ color, dash, points }, x, y) {
    const measured = points.filter(isMeasured);
    const [step, value] = measured[measured.length - 1];
    const dot = svg("circle", { class: "chart-dot", cx: x(step), cy: y(value), r: 3.5 });
    const node = svg("g", { class: "chart-series" },
      svg("path", { class: "chart-line", d: linePath(points, x, y), "stroke-dasharray": dash }), dot);
    node.style.setProperty("--model", color);
    return { node, dot };
  }

  function createLegendEntry({ name, color, dash }) {
    const value = html("span", { class: "chart-value" });
    const node = html("li", {},
      svg("svg", { class: "chart-key", viewBox: "0 0 26 8", "aria-hidden": "true" },
        svg("line", { class: "chart-line", x1: 1, x2: 25, y1: 4, y2: 4, "stroke-dasharray": dash })),
      html("span", {}, name), value);
    node.style.setProperty("--model", color);
    return { node, value };
  }

  /** The measured point of a line nearest to a step; the last one when no step is given. */
  function pointNear(points, step) {
    const measured = points.filter(isMeasured);
    if (step === null) return measured[measured.length - 1];
    return measured.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
  }

  return function createCurveChart(host, { title, series }) {
    const measured = series.flatMap(({ points }) => points.filter(isMeasured));
    const stepRange = rangeOf(measured.map(([step]) => step));
    const range = roundRangeOf(measured.map(([, value]) => value));
    const x = linear(stepRange, [EDGE.left, WIDTH - EDGE.right]);
    const y = linear(range, [HEIGHT - EDGE.bottom, EDGE.top]);
    const lines = series.map((one) => drawSeries(one, x, y));
    const entries = series.map(createLegendEntry);
    const at = html("span", { class: "chart-step" });
    const cursor = svg("line", { class: "chart-cursor", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: "hidden" });
    const drawing = svg("svg",
      { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": describe(title, series) },
      drawAxes(x, y, ticksBetween(...stepRange, 4), ticksBetween(...range, 4)), cursor,
      ...lines.map(({ node }) => node));

    function read(step) {
      const points = series.map(({ points: all }) => pointNear(all, step));
      points.forEach(([where, value], index) => {
        lines[index].dot.setAttribute("cx", x(where));
        lines[index].dot.setAttribute("cy", y(value));
        entries[index].value.textContent = readable(value);
      });
      const nearest = step === null ? null : pointNear(points, step)[0];
      at.textContent = nearest === null ? "at the end" : `at step ${formatter(1)(nearest)}`;
      cursor.setAttribute("visibility", nearest === null ? "hidden" : "visible");
      if (nearest !== null) cursor.setAttribute("transform", `translate(${x(nearest)} 0)`);
    }

    drawing.addEventListener("pointermove", (event) => {
      const frame = drawing.getBoundingClientRect();
      const position = ((event.clientX - frame.left) / frame.width) * WIDTH;
      read(linear([EDGE.left, WIDTH - EDGE.right], stepRange)(position));
    });
    drawing.addEventListener("pointerleave", () => read(null));
    read(null);
    host.replaceChildren(
      html("figcaption", {}, html("strong", {}, title), at), drawing,
      html("ul", { class: "chart-legend" }, ...entries.map(({ node }) => node)));
  };
})();
