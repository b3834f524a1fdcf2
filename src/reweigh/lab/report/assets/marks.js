// What is drawn inside a frame: one function for each kind of figure, each giving an svg and a reader of values.
const finite = (values) => values.filter((value) => value !== null && Number.isFinite(value));
const HEIGHT = 300;
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const say = (spec, value) => (spec.percent ? percent(value) : number(value));

function drawLines(spec, width) {
  const xs = spec.series.flatMap((series) => series.x);
  const tops = spec.series.flatMap((series) =>
    finite(series.y.map((y, i) => (y === null ? null : y + ((series.spread && series.spread[i]) || 0)))));
  const lows = spec.series.flatMap((series) => finite(series.y));
  const high = spec.top || (spec.percent ? Math.min(1.005, Math.max(...tops) * 1.04) : Math.max(...tops, 1e-9) * 1.06);
  // shares that all lie high up get the room below them
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
  for (const series of spec.series) {
    if (series.spread) drawn.plot.append(svg("path", { class: `band c${series.colour}`, d: bandPath(series, drawn) }));
  }
  for (const series of spec.series) {
    const d = linePath(series, drawn, high);
    drawn.plot.append(svg("path", { class: `line c${series.colour} v${series.variant || 0}`, d, "data-name": series.name }));
    for (const i of alone(series)) drawn.root.append(...lonely(series, i, drawn));
    for (const [x, y] of series.dots || []) {
      drawn.plot.append(svg("circle", { class: `dot c${series.colour}`, cx: drawn.X(x), cy: drawn.Y(Math.min(y, high)), r: 4.5 }));
    }
  }
  drawn.root.dataset.low = low;
  drawn.root.dataset.high = high;
  return { ...drawn, places: [...new Set(xs)].sort((a, b) => a - b), read: (x) => readLines(spec, x) };
}

// the points without a neighbour, of which no line could be drawn
function alone(series) {
  const there = (i) => Number.isFinite(series.y[i]);
  return series.y.map((_, i) => i).filter((i) => there(i) && !there(i - 1) && !there(i + 1));
}

// one such point: a dot for a solid line, a ring of dashes for a dashed one, and its standard deviation
function lonely(series, i, { X, Y }) {
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
  const there = series.x.map((x, i) => [x, series.y[i], series.spread[i] || 0]).filter(([, y]) => y !== null);
  const up = there.map(([x, y, s]) => `${X(x).toFixed(1)},${Y(y + s).toFixed(1)}`);
  const down = there.reverse().map(([x, y, s]) => `${X(x).toFixed(1)},${Y(y - s).toFixed(1)}`);
  return `M${up.join("L")}L${down.join("L")}Z`;
}

function readLines(spec, x) {
  const parts = spec.series.map((series) => {
    const i = series.x.indexOf(x);
    return i < 0 ? null : `${series.name} ${say(spec, series.y[i])}`;
  });
  return `${spec.x_short || spec.x_label} ${number(x)}: ${parts.filter(Boolean).join("; ")}`;
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
    return `${spec.x_label} ${spec.columns[j]}: ${spec.rows.map((name, i) => [name, spec.values[i][j]]).filter(([, value]) => value).map(([name, value]) => `${name} ${say(spec, value)}`).join("; ")}`;
  };
  return { ...drawn, places: spec.columns.map((_, j) => j + 0.5), read };
}

// the numbers of a matrix with as many digits as its cells have room for; null where there is none
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
    return `${spec.x_short || spec.x_label} ${spec.names[i]}: ${spec.sets.map(([name, values]) => `${name} ${say(spec, values[i])}`).join("; ")}`;
  };
  return { ...drawn, places: spec.names.map((_, i) => i + 0.5), read };
}

const DRAW = { lines: drawLines, stack: drawStack, heat: drawHeat, bars: drawBars };
