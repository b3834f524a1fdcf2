// A figure on the page: title, chart, legend, values under the pointer or the arrow keys, and the data as a table.
const figures = new Set();

function figureView(level = 3) {
  const title = el(`h${level}`);
  const caption = el("p", { class: "caption" });
  const legend = el("ul", { class: "legend" });
  const readout = el("output", { class: "readout" });
  const stage = el("div", { class: "stage", tabindex: 0, role: "img" });
  const data = el("div");
  const details = el("details", { ontoggle: () => table() }, el("summary", null, "The data as a table"), data);
  const element = el("figure", null, title, stage, readout, legend, el("figcaption", null, caption), details);
  let [spec, drawn, place] = [null, null, -1];

  function table() {
    if (details.open && spec) data.replaceChildren(plainTable(...asTable(spec), `Data: ${spec.title}`));
    else data.replaceChildren();
  }

  function draw() {
    const width = Math.round(stage.clientWidth);
    if (!spec || width === 0) return;
    drawn = DRAW[spec.kind](spec, width);
    drawn.cursor = svg("line", { class: "cursor", x1: 0, x2: 0, y1: drawn.top, y2: drawn.bottom });
    drawn.root.append(drawn.cursor);
    stage.replaceChildren(drawn.root);
    place = -1;
    readout.textContent = "";
  }

  function show(index) {
    place = Math.min(drawn.places.length - 1, Math.max(0, index));
    const x = drawn.places[place];
    for (const end of ["x1", "x2"]) drawn.cursor.setAttribute(end, drawn.X(x));
    drawn.cursor.classList.add("shown");
    readout.textContent = drawn.read(x);
  }

  stage.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    const at = event.clientX - stage.getBoundingClientRect().left;
    const distances = drawn.places.map((x) => Math.abs(drawn.X(x) - at));
    show(distances.indexOf(Math.min(...distances)));
  });
  stage.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
    if (!drawn || !(event.key in steps)) return;
    event.preventDefault();
    show(Number.isFinite(steps[event.key]) ? place + steps[event.key] : steps[event.key] > 0 ? drawn.places.length : 0);
  });

  const view = {
    element,
    draw,
    get spec() { return spec; },
    update(next) {
      spec = next;
      title.textContent = spec.title;
      caption.textContent = spec.caption || "";
      // a chart with a legend of its own is described by its caption, and the page has its data in a table
      details.hidden = Boolean(spec.legend);
      stage.setAttribute("aria-label", `${spec.legend ? `${spec.title}.` : describe(spec)} Use the arrow keys to read values.`);
      legend.replaceChildren(...(spec.legend || legendOf(spec)));
      draw();
      table();
    },
  };
  figures.add(view);
  return view;
}

// charts are redrawn when the width of the window changes
let pending = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => figures.forEach((view) => view.draw()));
});

function legendOf(spec) {
  if (spec.kind === "lines" && spec.shared) {
    // colours are groups, in the legend that all figures share; dashes are variants
    const variants = new Map(spec.series.map((series) => [series.words, series]));
    return [...variants.values()].filter((series) => series.words).map((series) => legendItem(series.words, 4, series.variant));
  }
  if (spec.kind === "lines" && spec.series.length > 1) {
    return spec.series.map((series) => legendItem(series.name, series.colour, series.variant));
  }
  if (spec.kind === "bars" && spec.sets.length > 1) {
    return spec.sets.map(([name], k) =>
      el("li", null, swatch(svg("rect", { x: 8, y: 1, width: 12, height: 12, class: `bar c${spec.colours ? spec.colours[k] : k % 8}` })), name));
  }
  if (spec.kind === "stack") {
    return spec.names.map((name, k) =>
      el("li", null, swatch(svg("rect", { x: 8, y: 1, width: 12, height: 12, fill: VIRIDIS[k % 10] })), `p ${name}`));
  }
  return [];
}

const legendItem = (words, colour, variant = 0) =>
  el("li", null, swatch(svg("path", { d: "M1,7H27", class: `line c${colour} v${variant}` })), words);
const swatch = (mark) => svg("svg", { width: 28, height: 14, "aria-hidden": "true" }, mark);

function describe(spec) {
  if (spec.kind === "lines") {
    const ends = spec.series.slice(0, 8).map((series) => {
      const values = series.y.filter((y) => y !== null);
      return `${series.name} goes from ${format(spec, values[0])} to ${format(spec, values[values.length - 1])}`;
    });
    return `${spec.title}: ${spec.y_label} over ${spec.x_label}. ${ends.join("; ")}.`;
  }
  if (spec.kind === "stack") {
    const last = spec.x.length - 1;
    const parts = spec.names.map((name, k) => `${percent(spec.layers[k][last], 0)} on p ${name}`);
    return `${spec.title}: ${spec.y_label} over ${spec.x_label}. At the end ${parts.join(", ")}.`;
  }
  if (spec.kind === "heat") {
    return `${spec.title}: ${spec.rows.length} rows (${spec.y_label}) by ${spec.columns.length} columns (${spec.x_label}).`;
  }
  return `${spec.title}: ${spec.names.map((name, i) => `${name} ${spec.sets.map(([, values]) => format(spec, values[i])).join(" and ")}`).join(", ")}.`;
}

function asTable(spec) {
  if (spec.kind === "lines") {
    const xs = [...new Set(spec.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    const places = spec.series.map((series) => new Map(series.x.map((x, i) => [x, i])));
    const cell = (series, i) => {
      if (i === undefined) return "";
      const spread = series.spread && series.spread[i];
      return spec.percent
        ? `${percent(series.y[i], 2)}${spread ? ` ± ${(100 * spread).toFixed(2)}` : ""}`
        : `${number(series.y[i], 6)}${spread ? ` ± ${number(spread, 3)}` : ""}`;
    };
    const counts = spec.counts && new Map(spec.counts);
    const examples = (x) => (counts ? [counts.has(x) ? number(counts.get(x)) : ""] : []);
    const rows = xs.map((x) => [number(x, 6), ...spec.series.map((series, k) => cell(series, places[k].get(x))), ...examples(x)]);
    return [[spec.x_label, ...spec.series.map((series) => series.name), ...(counts ? ["examples"] : [])], rows];
  }
  if (spec.kind === "stack") {
    return [[spec.x_label, ...spec.names.map((name) => `p ${name}`)], spec.x.map((x, i) => [number(x, 6), ...spec.layers.map((layer) => percent(layer[i], 2))])];
  }
  if (spec.kind === "heat") {
    return [[`${spec.y_label} \\ ${spec.x_label}`, ...spec.columns], spec.rows.map((name, i) => [name, ...spec.values[i].map((value) => (spec.percent ? percent(value, 2) : number(value, 6)))])];
  }
  return [[spec.x_label, ...spec.sets.map(([name]) => name)], spec.names.map((name, i) => [name, ...spec.sets.map(([, values]) => (spec.percent ? percent(values[i], 2) : number(values[i], 6)))])];
}

// A frame with axes, drawn at the available width, so that text keeps its size on a phone.
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
  const across = (value) => (x.high === x.low ? 0.5 : (value - x.low) / (x.high - x.low)); // a single value is in the middle
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

// One function for each kind of figure: it returns the svg, and a function that reads values.
const finite = (values) => values.filter((value) => value !== null && Number.isFinite(value));
const HEIGHT = 300;
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const format = (spec, value) => (spec.percent ? percent(value) : number(value));

function drawLines(spec, width) {
  const xs = spec.series.flatMap((series) => series.x);
  const tops = spec.series.flatMap((series) =>
    finite(series.y.map((y, i) => (y === null ? null : y + ((series.spread && series.spread[i]) || 0)))));
  const lows = spec.series.flatMap((series) => finite(series.y));
  const high = spec.top || (spec.percent ? Math.min(1.005, Math.max(...tops) * 1.04) : Math.max(...tops, 1e-9) * 1.06);
  // shares that are all high get an axis that does not start at 0
  const least = Math.min(...lows, spec.top ? 0 : Infinity);
  const low = spec.bottom || (spec.percent && least > 0.4 * high ? Math.max(0, Math.floor(20 * least - 0.2)) / 20 : 0);
  const [one, two] = ticks(low, high, 7);
  const digits = Math.max(0, -Math.floor(Math.log10(two - one || 1) + 1e-9) - 2);
  const drawn = frame({
    width,
    height: HEIGHT,
    x: { low: Math.min(...xs), high: Math.max(...xs), label: spec.x_label },
    y: { low, high, label: spec.y_label, format: spec.percent ? (at) => percent(at, digits) : number },
  });
  for (const at of spec.guides || []) {
    drawn.plot.append(svg("line", { class: "guide", x1: drawn.X(at), x2: drawn.X(at), y1: drawn.top, y2: drawn.bottom }));
  }
  if (spec.counts) drawCounts(spec, drawn);
  for (const series of spec.series) {
    if (series.spread) drawn.plot.append(svg("path", { class: `band c${series.colour}`, d: bandPath(series, drawn) }));
  }
  for (const series of spec.series) {
    const d = linePath(series, drawn, high);
    drawn.plot.append(svg("path", { class: `line c${series.colour} v${series.variant || 0}`, d, "data-name": series.name }));
    for (const i of isolated(series)) drawn.root.append(...pointMark(series, i, drawn));
    for (const [x, y] of series.dots || []) {
      drawn.plot.append(svg("circle", { class: `dot c${series.colour}`, cx: drawn.X(x), cy: drawn.Y(Math.min(y, high)), r: 4.5 }));
    }
  }
  drawn.root.dataset.low = low;
  drawn.root.dataset.high = high;
  return { ...drawn, places: [...new Set(xs)].sort((a, b) => a - b), read: (x) => readLines(spec, x) };
}

// how many examples are behind the points: bars at the bottom, up to a quarter of the height
function drawCounts(spec, { plot, X, top, bottom }) {
  const most = Math.max(...spec.counts.map(([, count]) => count));
  const half = 0.4 * (X(1) - X(0)) / 15;
  for (const [x, count] of spec.counts) {
    const height = (0.25 * (bottom - top) * count) / most;
    plot.append(svg("rect", { class: "count", x: X(x) - half, y: bottom - height, width: 2 * half, height }));
  }
}

// indices of points without a neighbour, which a line does not show
function isolated(series) {
  const present = (i) => Number.isFinite(series.y[i]);
  return series.y.map((_, i) => i).filter((i) => present(i) && !present(i - 1) && !present(i + 1));
}

// such a point: a dot for a solid line, a dashed ring for a dashed one, and its standard deviation
function pointMark(series, i, { X, Y }) {
  const [x, y, room] = [X(series.x[i]), series.y[i], (series.spread && series.spread[i]) || 0];
  const kind = series.variant ? `line c${series.colour} v${series.variant}` : `dot c${series.colour}`;
  const dot = svg("circle", { class: kind, cx: x, cy: Y(y), r: 4.5, "data-name": series.name });
  return room ? [svg("path", { class: `line c${series.colour}`, d: `M${x},${Y(y - room)}V${Y(y + room)}` }), dot] : [dot];
}

function linePath(series, { X, Y }, high) {
  let pen = "M";
  return series.x.map((x, i) => {
    const y = series.y[i];
    if (y === null || Number.isNaN(y)) { pen = "M"; return ""; }
    const point = `${pen}${X(x).toFixed(2)},${Y(Math.min(y, 3 * high)).toFixed(2)}`;
    pen = "L";
    return point;
  }).join("");
}

function bandPath(series, { X, Y }) {
  const points = series.x.map((x, i) => [x, series.y[i], series.spread[i] || 0]).filter(([, y]) => y !== null);
  const up = points.map(([x, y, s]) => `${X(x).toFixed(1)},${Y(y + s).toFixed(1)}`);
  const down = points.reverse().map(([x, y, s]) => `${X(x).toFixed(1)},${Y(y - s).toFixed(1)}`);
  return `M${up.join("L")}L${down.join("L")}Z`;
}

function readLines(spec, x) {
  const parts = spec.series.map((series) => {
    const i = series.x.indexOf(x);
    return i < 0 ? null : `${series.name} ${format(spec, series.y[i])}`;
  });
  const count = (spec.counts || []).find(([at]) => at === x);
  return `${spec.x_short || spec.x_label} ${number(x)}: ${parts.filter(Boolean).join("; ")}${count ? `; ${number(count[1])} examples` : ""}`;
}

function drawStack(spec, width) {
  const drawn = frame({
    width,
    height: HEIGHT,
    x: { low: spec.x[0], high: spec.x[spec.x.length - 1], label: spec.x_label },
    y: { low: 0, high: 1, label: spec.y_label, format: (at) => percent(at, 0) },
  });
  const below = spec.x.map(() => 0);
  // a single evaluation is a bar
  const half = spec.x.length === 1 ? (drawn.right - drawn.left) / 6 : 0;
  const side = (heights, shift) => spec.x.map((x, i) => `${(drawn.X(x) + shift).toFixed(1)},${drawn.Y(heights[i]).toFixed(1)}`);
  const edge = (heights) => (half ? [...side(heights, -half), ...side(heights, half)] : side(heights, 0));
  spec.layers.forEach((layer, k) => {
    const floor = [...below];
    layer.forEach((value, i) => { below[i] += value || 0; });
    const [up, down] = [edge(below), edge(floor).reverse()];
    drawn.plot.append(svg("path", { d: `M${up.join("L")}L${down.join("L")}Z`, fill: VIRIDIS[k % 10] }));
  });
  const read = (x) => {
    const i = spec.x.indexOf(x);
    return `${spec.x_label} ${number(x)}: ${spec.names.map((name, k) => `p ${name} ${percent(spec.layers[k][i], 0)}`).join("; ")}`;
  };
  return { ...drawn, places: spec.x, read };
}

function drawHeat(spec, width) {
  const [rows, columns] = [spec.rows.length, spec.columns.length];
  const every = Math.ceil(rows / 30);
  const across = Math.max(1, Math.ceil(columns / Math.max(2, Math.floor(width / 70))));
  const drawn = frame({
    width,
    height: Math.min(520, Math.max(HEIGHT, 60 + 22 * rows)),
    x: { low: 0, high: columns, label: spec.x_label, ticks: spec.columns.map((name, i) => [i + 0.5, short(name)]).filter((_, i) => i % across === 0) },
    y: { low: rows, high: 0, label: spec.y_label, ticks: spec.rows.map((name, i) => [i + 0.5, short(name)]).filter((_, i) => i % every === 0) },
  });
  const top = Math.max(...spec.values.flatMap(finite), 1e-12);
  const written = Math.max(rows, columns) <= 12 && !spec.percent ? fitting(spec.values, drawn.X(1) - drawn.X(0)) : null;
  spec.values.forEach((row, i) => row.forEach((value, j) => {
    const [left, up] = [drawn.X(j), drawn.Y(i)];
    const cell = svg("rect", { x: left, y: up, width: drawn.X(j + 1) - left, height: drawn.Y(i + 1) - up, class: "cell" });
    const depth = Math.sqrt((value || 0) / top);
    cell.style.fill = `color-mix(in srgb, var(--deep) ${(100 * depth).toFixed(0)}%, var(--pale))`;
    drawn.plot.append(cell);
    if (written) {
      drawn.plot.append(svg("text", { x: (left + drawn.X(j + 1)) / 2, y: (up + drawn.Y(i + 1)) / 2 + 4, "text-anchor": "middle", class: depth > 0.55 ? "on-deep" : "on-pale" }, written[i][j]));
    }
  }));
  const read = (x) => {
    const j = Math.min(columns - 1, Math.max(0, Math.floor(x)));
    return `${spec.x_label} ${spec.columns[j]}: ${spec.rows.map((name, i) => [name, spec.values[i][j]]).filter(([, value]) => value).map(([name, value]) => `${name} ${format(spec, value)}`).join("; ")}`;
  };
  return { ...drawn, places: spec.columns.map((_, j) => j + 0.5), read };
}

// the numbers of a matrix with as many digits as fit in its cells; null if none fit
function fitting(values, room) {
  for (const digits of [3, 2]) {
    const texts = values.map((row) => row.map((value) => number(value, digits)));
    if (Math.max(...texts.flat().map((text) => text.length)) * 7 + 4 <= room) return texts;
  }
  return null;
}

const short = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

function drawBars(spec, width) {
  const high = Math.max(...spec.sets.flatMap(([, values]) => finite(values)), 1e-9) * 1.05;
  const skip = Math.max(1, Math.ceil(spec.names.length / Math.max(2, Math.floor(width / 56))));
  const drawn = frame({
    width,
    height: HEIGHT,
    x: { low: 0, high: spec.names.length, label: spec.x_label, ticks: spec.names.map((name, i) => [i + 0.5, short(name)]).filter((_, i) => i % skip === 0) },
    y: { low: 0, high, label: spec.y_label, format: spec.percent ? (at) => percent(at, 0) : number },
  });
  const each = 0.84 / spec.sets.length;
  spec.sets.forEach(([name, values], k) => values.forEach((value, i) => {
    const left = drawn.X(i + 0.08 + k * each);
    const up = drawn.Y(value || 0);
    drawn.plot.append(svg("rect", { class: `bar c${spec.colours ? spec.colours[k] : k % 8}`, x: left, y: up, width: Math.max(1, drawn.X(i + 0.08 + (k + 1) * each) - left - 0.5), height: drawn.bottom - up, "data-name": name }));
  }));
  const read = (x) => {
    const i = Math.min(spec.names.length - 1, Math.max(0, Math.floor(x)));
    return `${spec.x_short || spec.x_label} ${spec.names[i]}: ${spec.sets.map(([name, values]) => `${name} ${format(spec, values[i])}`).join("; ")}`;
  };
  return { ...drawn, places: spec.names.map((_, i) => i + 0.5), read };
}

const DRAW = { lines: drawLines, stack: drawStack, heat: drawHeat, bars: drawBars };
