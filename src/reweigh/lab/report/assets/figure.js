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
      stage.setAttribute("aria-label", `${describe(spec)} Arrow keys read the values.`);
      legend.replaceChildren(...legendOf(spec));
      draw();
      table();
    },
  };
  figures.add(view);
  return view;
}

// charts follow the width of the window
let pending = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => figures.forEach((view) => view.draw()));
});

function legendOf(spec) {
  if (spec.kind === "lines" && spec.labels && spec.series.some((series) => series.words)) {
    // colours are groups and dashes are variants: each is explained once
    const line = (words, colour, variant) => el("li", null, swatch(svg("path", { d: "M1,7H27", class: `line c${colour} v${variant}` })), words);
    const one = (key) => [...new Map(spec.series.map((series) => [series[key], series])).values()];
    return [
      ...one("group").map((series) => line(spec.labels[series.group], series.colour, 0)),
      ...one("words").filter((series) => series.words).map((series) => line(series.words, 4, series.variant || 0)),
    ];
  }
  if (spec.kind === "lines" && spec.series.length > 1) {
    return spec.series.map((series) =>
      el("li", null, swatch(svg("path", { d: "M1,7H27", class: `line c${series.colour} v${series.variant || 0}` })), series.name));
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

const swatch = (mark) => svg("svg", { width: 28, height: 14, "aria-hidden": "true" }, mark);

function describe(spec) {
  if (spec.kind === "lines") {
    const ends = spec.series.slice(0, 8).map((series) => {
      const there = series.y.filter((y) => y !== null);
      return `${series.name} goes from ${say(spec, there[0])} to ${say(spec, there[there.length - 1])}`;
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
  return `${spec.title}: ${spec.names.map((name, i) => `${name} ${spec.sets.map(([, values]) => say(spec, values[i])).join(" and ")}`).join(", ")}.`;
}

function asTable(spec) {
  if (spec.kind === "lines") {
    const xs = [...new Set(spec.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    const places = spec.series.map((series) => new Map(series.x.map((x, i) => [x, i])));
    const cell = (series, i) => {
      if (i === undefined) return "";
      const room = series.spread && series.spread[i];
      return spec.percent
        ? `${percent(series.y[i], 2)}${room ? ` ± ${(100 * room).toFixed(2)}` : ""}`
        : `${number(series.y[i], 6)}${room ? ` ± ${number(room, 3)}` : ""}`;
    };
    const rows = xs.map((x) => [number(x, 6), ...spec.series.map((series, k) => cell(series, places[k].get(x)))]);
    return [[spec.x_label, ...spec.series.map((series) => series.name)], rows];
  }
  if (spec.kind === "stack") {
    return [[spec.x_label, ...spec.names.map((name) => `p ${name}`)], spec.x.map((x, i) => [number(x, 6), ...spec.layers.map((layer) => percent(layer[i], 2))])];
  }
  if (spec.kind === "heat") {
    return [[`${spec.y_label} \\ ${spec.x_label}`, ...spec.columns], spec.rows.map((name, i) => [name, ...spec.values[i].map((value) => (spec.percent ? percent(value, 2) : number(value, 6)))])];
  }
  return [[spec.x_label, ...spec.sets.map(([name]) => name)], spec.names.map((name, i) => [name, ...spec.sets.map(([, values]) => (spec.percent ? percent(values[i], 2) : number(values[i], 6)))])];
}
