// The page of a search: the best setting, a map of two choices, parallel coordinates, its weighting, and all trials.
const { search } = content;
const tried = search.trials.filter((trial) => trial.score !== null && trial.places.some((place) => place !== null))
  .sort((a, b) => a.score - b.score); // so that the best is drawn last
const level = (score) => Math.min(VIRIDIS.length - 1, Math.max(0, Math.round((VIRIDIS.length - 1) * (score - search.low) / (search.high - search.low || 1))));
const clipped = tried.some((trial) => trial.score < search.low);
const sampled = (trial) => Object.entries(trial.choices).map(([name, value]) => `${name} ${typeof value === "number" ? number(value, 3) : value}`).join(", ");
const summary = (trial) => `trial ${trial.trial}: ${sampled(trial)}: ${percent(trial.score, 2)}${trial.state === "done" ? "" : ` (${trial.state} at ${trial.step})`}`;

DRAW.map = ({ x_label, y_label, axes: [across, up] }, width) => {
  const [x, y] = [search.axes[across], search.axes[up]];
  const drawn = frame({ width, height: 340, x: { low: -0.04, high: 1.04, label: x_label, ticks: x.ticks }, y: { low: -0.06, high: 1.06, label: y_label, ticks: y.ticks } });
  const shown = tried.filter(({ places }) => places[across] !== null && places[up] !== null);
  shown.forEach((trial) => drawn.plot.append(svg("circle", {
    class: trial.best ? "trial best" : "trial", cx: drawn.X(trial.places[across]), cy: drawn.Y(trial.places[up]),
    r: trial.state === "pruned" ? 4 : 8, fill: VIRIDIS[level(trial.score)] })));
  const at = (place) => shown.filter(({ places }) => places[across] === place).map(summary).join("; ");
  return { ...drawn, places: [...new Set(shown.map(({ places }) => places[across]))].sort((a, b) => a - b), read: at };
};

DRAW.parallel = (spec, width) => {
  const scores = [...new Set(tried.map(({ score }) => score))];
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  const share = (score) => (score - least) / (most - least || 1);
  const shown = [...search.axes, { name: "score", ticks: [least, most].map((score) => [share(score), percent(score)]) }];
  const last = shown.length - 1;
  const drawn = frame({ width, height: 340, x: { low: 0, high: last, label: "", ticks: shown.map(({ name }, i) => [i, short(name)]) }, y: { low: -0.03, high: 1.03, label: "", ticks: [] } });
  shown.forEach((axis, i) => {
    drawn.plot.append(svg("line", { class: "grid", x1: drawn.X(i), x2: drawn.X(i), y1: drawn.top, y2: drawn.bottom }));
  });
  tried.forEach((trial) => {
    const points = [...trial.places, share(trial.score)].map((place, i) => (place === null ? null : `${drawn.X(i).toFixed(1)},${drawn.Y(place).toFixed(1)}`));
    drawn.plot.append(svg("polyline", { class: `trial${trial.best ? " best" : ""}${trial.state === "pruned" ? " v2" : ""}`, points: points.filter(Boolean).join(" "), stroke: VIRIDIS[level(trial.score)] }));
  });
  // on top of the lines, inside the frame
  shown.forEach((axis, i) => axis.ticks.forEach(([place, text]) => drawn.root.append(
    svg("text", { class: "over", x: drawn.X(i), y: drawn.Y(place) + 4, "text-anchor": "middle" }, text))));
  const best = tried.find((trial) => trial.best);
  const read = (i) => `${shown[i].name}${best && i < last ? `: ${best.choices[shown[i].name] ?? "–"} in the best trial` : ""}`;
  return { ...drawn, places: shown.map((_, i) => i), read };
};

const scale = VIRIDIS.map((colour, k) => {
  const score = search.low + (k * (search.high - search.low)) / (VIRIDIS.length - 1);
  const words = k === 0 ? `${clipped ? "≤ " : ""}${percent(score)}` : k === VIRIDIS.length - 1 ? percent(score) : "";
  return el("li", null, swatch(svg("rect", { x: 8, y: 1, width: 12, height: 12, fill: colour })), words);
});
const below = clipped ? " All values at or below the number with ≤ share one colour." : "";
const specs = [];
if (search.map.length) {
  const [x_label, y_label] = search.map.map((i) => search.axes[i].name);
  specs.push({ kind: "map", key: "map", title: "Score by setting", axes: search.map, x_label, y_label, legend: scale,
    caption: `One dot per trial, coloured by validation accuracy; small dots are pruned trials, the ring marks the best.${below}` });
}
if (search.axes.length && new Set(tried.map(({ score }) => score)).size > 1) {
  specs.push({ kind: "parallel", key: "parallel", title: "Parallel coordinates", x_label: "choice", y_label: "score",
    legend: search.map.length ? [] : scale, caption: "One line per trial; dotted lines are pruned trials, the thick one is the best." });
}
if (search.density) specs.push({ ...search.density, series: search.density.series.map((each) => ({ ...each, colour: 0 })) });

const names = [...new Set(search.trials.flatMap((trial) => Object.keys(trial.choices)))];
const cell = (value) => (value === null || value === undefined ? "–" : typeof value === "number" ? number(value) : String(value));
const column = (name, pick, show = cell) => ({ name, value: pick, left: search.trials.some((trial) => typeof pick(trial) === "string"), cell: (trial) => show(pick(trial)) });
const columns = [
  column("Trial", (trial) => trial.trial),
  column("Validation", (trial) => trial.score, (score) => percent(score, 2)),
  ...names.map((name) => column(name, (trial) => trial.choices[name])),
  column("State", (trial) => trial.state),
  column("Step", (trial) => trial.step),
  column("Run", (trial) => trial.run),
];
const table = sortableTable(columns, search.trials, { label: "Table of trials", initial: 1, descending: true });
const views = specs.map((spec) => [spec, figureView()]);
document.getElementById("main").append(
  el("p", { class: "note" }, "The validation set was ", el("strong", null, search.judged), "."),
  ...(search.best ? [el("p", null, "Best setting: ", el("strong", null, search.best[0]), "; ", search.best[1])] : []),
  el("section", { "aria-labelledby": "charts" }, el("h2", { id: "charts" }, "Charts"), el("div", { class: "figures" }, views.map(([, view]) => view.element))),
  el("section", { "aria-labelledby": "trials" }, el("h2", { id: "trials" }, "Trials"), table.element));
views.forEach(([spec, view]) => view.update(spec));
document.getElementById("version").textContent = content.version;
