// A frame with axes, drawn at the width there is, so that letters keep their size on a phone.
function ticks(low, high, most) {
  const rough = (high - low) / most;
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough * (1 - 1e-9));
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// {root, plot, X, Y}: an svg, the group to draw into, and the scales
function frame({ width, height, x, y, label }) {
  const shown = y.ticks || ticks(y.low, y.high, 7).map((at) => [at, y.format ? y.format(at) : rounded(at)]);
  const left = 28 + 8 * Math.max(2, ...shown.map(([, text]) => text.length));
  const [right, top, bottom] = [14, 10, 42];
  const across = (value) => (x.high === x.low ? 0.5 : (value - x.low) / (x.high - x.low)); // a single place lies in the middle
  const X = (value) => left + across(value) * (width - left - right);
  const Y = (value) => height - bottom - ((value - y.low) / (y.high - y.low || 1)) * (height - top - bottom);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", class: "chart" });
  for (const [at, text] of shown) {
    if (!y.ticks) root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: Y(at), y2: Y(at) }));
    root.append(svg("text", { x: left - 6, y: Y(at) + 4, "text-anchor": "end" }, text));
  }
  const along = x.ticks || ticks(x.low, x.high, Math.max(2, Math.floor(width / 70))).map((at) => [at, rounded(at)]);
  for (const [at, text] of along) {
    if (!x.ticks) root.append(svg("line", { class: "axis", x1: X(at), x2: X(at), y1: height - bottom, y2: height - bottom + 4 }));
    root.append(svg("text", { x: X(at), y: height - bottom + 18, "text-anchor": "middle" }, text));
  }
  root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  root.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", class: "name" }, x.label));
  const middle = (top + height - bottom) / 2;
  root.append(svg("text", { x: 12, y: middle, "text-anchor": "middle", class: "name", transform: `rotate(-90 12 ${middle})` }, y.label));
  const clip = newId("clip");
  root.append(svg("clipPath", { id: clip }, svg("rect", { x: left - 1, y: top - 6, width: width - left - right + 2, height: height - top - bottom + 7 })));
  const plot = svg("g", { "clip-path": `url(#${clip})` });
  root.append(plot);
  return { root, plot, X, Y, left, right: width - right, top, bottom: height - bottom };
}
