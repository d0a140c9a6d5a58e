"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const W = 460, H = 320, L = 62, R = 22, T = 12, B = 44;
  const COLOURS = ["var(--negative)", "var(--positive)", "var(--holds)", "var(--undecided)", "var(--vacuous)", "var(--soft)"];
  // A class has one colour wherever it appears.
  const colour = (name, k) => ({ positive: "var(--positive)", negative: "var(--negative)" })[name] || COLOURS[k % 6];
  const FEW = 16; // points of a curve that are marked, so that what was measured is told from what joins it
  const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 4", "1 4"];

  const make = (tag, attributes, parent, text) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const short = (v) => {
    if (v === 0) return "0";
    const size = Math.abs(v);
    return size >= 1e5 || size < 1e-3 ? (+v.toPrecision(3)).toExponential().replace("e+", "e") : String(+v.toPrecision(4));
  };

  function axis(low, high, log) {
    if (log) {
      const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
      const step = Math.max(1, Math.ceil((last - first) / 6));
      const ticks = [];
      for (let k = first; k <= last; k += step) ticks.push(10 ** k);
      if (high / low < 100) for (let k = first; k <= last; k++) ticks.push(2 * 10 ** k, 5 * 10 ** k);
      if (ticks.filter((t) => t >= low && t <= high).length < 2) ticks.push(...axis(low, high, false).ticks);
      return { map: (v) => (Math.log10(v) - Math.log10(low)) / (Math.log10(high) - Math.log10(low) || 1), ticks: ticks.filter((t) => t >= low && t <= high) };
    }
    const span = high - low || Math.abs(high) || 1;
    const raw = span / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    const ticks = [];
    for (let t = Math.ceil(low / step) * step; t <= high + 1e-9 * span; t += step) ticks.push(Math.abs(t) < 1e-12 * span ? 0 : t);
    return { map: (v) => (v - low) / span, ticks };
  }

  function frame(box, x, y, labels) {
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${labels[1]} against ${labels[0]}` });
    const px = (v) => L + x.map(v) * (W - L - R), py = (v) => H - B - y.map(v) * (H - T - B);
    for (const t of x.ticks) {
      make("line", { class: "grid", x1: px(t), x2: px(t), y1: T, y2: H - B }, svg);
      make("text", { x: px(t), y: H - B + 16, "text-anchor": "middle" }, svg, short(t));
    }
    for (const t of y.ticks) {
      make("line", { class: "grid", x1: L, x2: W - R, y1: py(t), y2: py(t) }, svg);
      make("text", { x: L - 6, y: py(t) + 4, "text-anchor": "end" }, svg, short(t));
    }
    make("line", { class: "axis", x1: L, x2: W - R, y1: H - B, y2: H - B }, svg);
    make("line", { class: "axis", x1: L, x2: L, y1: T, y2: H - B }, svg);
    make("text", { x: (L + W - R) / 2, y: H - 8, "text-anchor": "middle" }, svg, labels[0]);
    make("text", { x: 14, y: (T + H - B) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(T + H - B) / 2})` }, svg, labels[1]);
    box.appendChild(svg);
    return { svg, px, py };
  }

  function curves(box, chart) {
    const usable = (v, log) => v !== null && Number.isFinite(v) && (!log || v > 0);
    const names = Object.keys(chart.series);
    const bands = Object.entries(chart.bands);
    const xs = [], ys = Object.values(chart.levels).filter((v) => usable(v, chart.log_y));
    for (const name of names) chart.series[name].forEach((v, i) => {
      if (usable(v, chart.log_y) && usable(chart.x[i], chart.log_x)) { xs.push(chart.x[i]); ys.push(v); }
    });
    for (const [, ends] of bands) for (const end of ends) ys.push(...end.filter((v) => usable(v, chart.log_y)));
    if (!xs.length) { box.textContent = "no finite values to draw"; return; }
    const low = Math.min(...ys), high = Math.max(...ys), pad = chart.log_y ? 0 : 0.05 * (high - low || Math.abs(high) || 1);
    const x = axis(Math.min(...xs), Math.max(...xs), chart.log_x), y = axis(low - pad, high + pad, chart.log_y);
    if (!chart.log_x && xs.every(Number.isInteger)) x.ticks = x.ticks.filter(Number.isInteger); // layers, indices, widths
    const { svg, px, py } = frame(box, x, y, [chart.x_label, chart.y_label]);
    for (const [name, value] of Object.entries(chart.levels)) {
      if (!usable(value, chart.log_y)) continue;
      const line = make("line", { class: "level", x1: L, x2: W - R, y1: py(value), y2: py(value) }, svg);
      make("title", {}, line, `${name}: ${value}`);
    }
    const tip = document.createElement("div");
    tip.className = "tip";
    for (const [name, [low, high]] of bands) {
      const good = chart.x.map((v, i) => i).filter((i) => usable(chart.x[i], chart.log_x) && usable(low[i], chart.log_y) && usable(high[i], chart.log_y));
      const corner = (i, v) => `${px(chart.x[i]).toFixed(1)} ${py(v).toFixed(1)}`;
      const outline = [...good.map((i) => corner(i, high[i])), ...good.reverse().map((i) => corner(i, low[i]))];
      if (outline.length) make("path", { d: `M${outline.join("L")}Z`, fill: colour(name, names.indexOf(name)), "fill-opacity": 0.2 }, svg);
    }
    names.forEach((name, k) => {
      if (chart.points) {
        chart.series[name].forEach((v, i) => {
          if (!usable(v, chart.log_y) || !usable(chart.x[i], chart.log_x)) return;
          make("circle", { cx: px(chart.x[i]).toFixed(1), cy: py(v).toFixed(1), r: 4.5, fill: colour(name, k) }, svg);
        });
        return;
      }
      let path = "", open = false;
      chart.series[name].forEach((v, i) => {
        if (!usable(v, chart.log_y) || !usable(chart.x[i], chart.log_x)) { open = false; return; }
        if (chart.x.length <= FEW) make("circle", { cx: px(chart.x[i]).toFixed(1), cy: py(v).toFixed(1), r: 3.5, fill: colour(name, k) }, svg);
        path += `${open ? "L" : "M"}${px(chart.x[i]).toFixed(1)} ${py(v).toFixed(1)}`;
        open = true;
      });
      make("path", { d: path, fill: "none", stroke: colour(name, k), "stroke-width": 2, "stroke-dasharray": DASHES[k % 6] }, svg);
    });
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * W;
      let best = 0, gap = Infinity;
      chart.x.forEach((v, i) => { if (usable(v, chart.log_x) && Math.abs(px(v) - at) < gap) { gap = Math.abs(px(v) - at); best = i; } });
      tip.textContent = `${chart.x_label} ${short(chart.x[best])}: ` + names.map((n) => `${n} ${chart.series[n][best] === null ? "–" : +chart.series[n][best].toPrecision(5)}`).join(", ");
    });
    box.appendChild(tip);
    const legend = document.createElement("div");
    legend.className = "note";
    const alone = names.length === 1 && !Object.keys(chart.levels).length && names[0] === chart.y_label;
    names.forEach((name, k) => {
      if (alone) return; // the axis says it
      const item = document.createElement("span");
      item.style.marginRight = "1em";
      const mark = make("svg", { viewBox: "0 0 24 8", style: "width:24px;display:inline-block;margin-right:.3em" });
      make("line", { x1: 0, x2: 24, y1: 4, y2: 4, stroke: colour(name, k), "stroke-width": 2, "stroke-dasharray": DASHES[k % 6] }, mark);
      item.append(mark, name);
      legend.appendChild(item);
    });
    for (const name of Object.keys(chart.levels)) {
      const item = document.createElement("span");
      item.textContent = `- - ${name} `;
      legend.appendChild(item);
    }
    box.appendChild(legend);
  }

  function scatter(box, chart) {
    const length = (c) => Math.hypot(c[0], c[1]);
    const longest = chart.coordinates.reduce((most, c) => Math.max(most, length(c)), 1e-300);
    const still = chart.coordinates.map((c) => [c[0] / longest, c[1] / longest]);
    const edge = { map: (v) => (v + 1.2) / 2.4, ticks: [-1, -0.5, 0, 0.5, 1] };
    // The second direction may be far shorter than the first: its axis is as long as the neurons need.
    const tall = 1.2 * [still, ...chart.frames].flat().reduce((most, c) => Math.max(most, Math.abs(c[1])), 0.1);
    const side = axis(-tall, tall, false);
    const { svg, px, py } = frame(box, edge, side, ["first singular direction (longest neuron = 1)", "second singular direction"]);
    chart.directions.forEach((d, k) => {
      const size = length(d);
      if (!size) return;
      const reach = Math.min(1.1 / (Math.abs(d[0]) || 1e-300), 0.92 * tall / (Math.abs(d[1]) || 1e-300));
      make("line", { class: "ray", x1: px(0), y1: py(0), x2: px(reach * d[0]), y2: py(reach * d[1]) }, svg);
      const name = { x: px(reach * d[0]), y: py(reach * d[1]) + (d[1] < 0 ? 20 : -10), class: "name", "text-anchor": "middle" };
      make("text", name, svg, chart.direction_names[k]);
    });
    const tip = document.createElement("div");
    tip.className = "tip";
    const marks = still.map((c, j) => {
      const up = chart.sign[j] > 0;
      const mark = make("path", { class: "neuron", d: up ? "M0 -5L5 4L-5 4Z" : "M0 5L5 -4L-5 -4Z", fill: up ? "var(--positive)" : "var(--negative)", "fill-opacity": 0.75, tabindex: 0 }, svg);
      make("title", {}, mark, chart.tips[j]);
      for (const name of ["pointerenter", "focus"]) mark.addEventListener(name, () => { tip.textContent = chart.tips[j]; });
      return mark;
    });
    const place = (points) => points.forEach((c, j) => marks[j].setAttribute("transform", `translate(${px(c[0]).toFixed(2)} ${py(c[1]).toFixed(2)})`));
    place(still);
    box.appendChild(tip);
    const count = chart.frames.length;
    if (!count) return;
    const controls = document.createElement("label");
    controls.className = "controls";
    const slider = document.createElement("input"), now = document.createElement("output");
    Object.assign(slider, { type: "range", min: 0, max: count, value: count });
    slider.setAttribute("aria-label", "time");
    const show = () => {
      const k = +slider.value;
      place(k === count ? still : chart.frames[k]);
      now.textContent = k === count ? "end" : chart.frame_labels[k];
    };
    slider.addEventListener("input", show);
    controls.append("time", slider, now);
    box.appendChild(controls);
    show();
  }

  const charts = JSON.parse(document.getElementById("charts").textContent);
  for (const box of document.querySelectorAll("[data-chart]")) {
    const chart = charts[+box.dataset.chart];
    (chart.kind === "scatter" ? scatter : curves)(box, chart);
  }
})();
