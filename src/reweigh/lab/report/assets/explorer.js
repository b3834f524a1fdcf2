// The explorer: sliders for weightings, and figures of everything that follows from w.
const GRID = Array.from({ length: 201 }, (_, i) => i / 200);
const INNER = GRID.slice(1, -1);
const TENTHS = Array.from({ length: 10 }, (_, i) => [i / 10, (i + 1) / 10]);

// all data come from catalogue.py
function buildExplorer({ catalogue, start, compare, references }, root, level) {
  const changed = () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(update); };
  let [waiting, probabilities] = [0, []];
  const first = chooser("Weighting", catalogue, start, changed);
  const second = chooser("Compare with", catalogue, compare, changed);
  const taper = knobView({ name: "taper", start: 0, least: 0, stops: TAPERS }, changed);
  const classes = knobView({ name: "classes", low: 2, high: 100, step: 1, start: start.classes || 10, least: 2, integer: true }, changed);
  const refusal = el("output", { class: "problem", id: newId("refusal") });
  const samples = el("input", { id: newId("samples"), type: "text", value: "0.98, 0.9, 0.7, 0.5, 0.3, 0.1, 0.02", "aria-describedby": refusal.id, oninput: changed });
  const problem = el("output", { class: "problem" });
  const [python, command] = [copyLine("Python"), copyLine("Command")];
  const views = Object.fromEntries(["w", "density", "share", "potential", "batch"].map((key) => [key, figureView(level + 1)]));
  const numbers = el("div", { class: "facts" });
  const begin = el("p", { class: "begin" });
  const controls = el("div", { class: "controls" },
    first.element,
    el("fieldset", null, el("legend", null, "Setting"), taper.element, classes.element, begin),
    second.element,
    el("fieldset", null, el("legend", null, "Batch"), el("label", { htmlFor: samples.id, class: "above" }, "p of the examples"), samples, refusal));
  root.append(
    el("p", null, "A weighting w(p) is the weight of an example whose label has probability p. Move the sliders; the page computes every curve as the library does."),
    el("div", { class: "explorer" }, controls, el("div", { class: "results" },
      problem, python.element, command.element, numbers,
      el("div", { class: "figures" }, Object.values(views).map((view) => view.element)))));

  function update() {
    const count = Math.max(2, Math.round(classes.value));
    const [a, b] = [first.state(count), second.state(count)];
    problem.textContent = a.problem || b.problem || "";
    if (a.problem || b.problem) return;
    taper.startFrom(a.ownTaper);
    const byDefault = taper.value === a.ownTaper;
    const tapered = byDefault ? "" : `, taper=${taper.value}`;
    python.set(`criterion = reweigh.Criterion(reweigh.${a.text}${tapered})`);
    command.set(`reweigh train --data digits --net mlp-128 --weighting "${a.text}"${byDefault ? "" : ` --taper ${taper.value}`}`);
    const compared = [
      { ...a, colour: 0, taper: taper.value },
      { ...b, colour: 1, taper: b.ownTaper },
      ...references.map(({ name, values }, i) => ({ name, values, text: asPython(name, values), colour: 2 + i, taper: entryOf(catalogue, name).taper })),
    ].map((each, i) => measure({ ...each, variant: Math.min(i, 2) }));
    numbers.replaceChildren(factsTable(compared));
    const at = weight(compared[0].tapered, 1 / count, 1 - 1 / count);
    begin.textContent = `At the start of training p is about 1/C = ${number(1 / count)} and w = ${number(at)}: the derivative is −${number(at / 2)} for the logit of the label and +${number(at / 2 / (count - 1))} for each of the ${count - 1} others. Training can tolerate symmetric noise up to a rate of (C − 1)/C = ${number((count - 1) / count)}.`;
    drawCurves(compared, count, views);
    const read = readBatch(samples.value);
    refusal.textContent = read.problem || "";
    samples.classList.toggle("wrong", Boolean(read.problem));
    samples.setAttribute("aria-invalid", Boolean(read.problem));
    if (!read.problem) probabilities = read.probabilities;
    drawBatch(compared, probabilities, views.batch);
  }

  return { update, state: () => ({ first: first.state(Math.round(classes.value)), taper: taper.value, classes: classes.value, specs: Object.fromEntries(Object.entries(views).map(([key, view]) => [key, view.spec])) }) };
}

// everything that follows from one weighting; cached, because a slider changes only one of them
const measured = new Map();
function measure(each) {
  const key = `${each.text} ${each.taper}`;
  if (!measured.has(key)) {
    if (measured.size > 12) measured.clear();
    const [plain, tapered] = [weightingOf(each), weightingOf(each, each.taper)];
    const z = integral(plain);
    const density = (p) => weight(plain, p, 1 - p) / (z === Infinity ? 1 : z);
    const top = mode(plain);
    const objective = potentialOf(tapered);
    measured.set(key, {
      tapered,
      z,
      mode: top,
      variance: variance(plain),
      range: potentialRange(tapered),
      hard: share(plain, 0, 0.5),
      shares: TENTHS.map(([low, high]) => share(plain, low, high)),
      w: GRID.map((p) => weight(tapered, p, 1 - p)),
      h: GRID.map(density),
      dots: [top].flat().filter((p) => p !== null).map((p) => [p, density(p)]).filter(([, y]) => Number.isFinite(y)),
      objective: objective && INNER.map((p) => objective(margin(p, 1 - p))),
    });
  }
  return { ...each, ...measured.get(key) };
}

function drawCurves(compared, count, views) {
  const ends = { kind: "lines", x_label: "p, the probability of the label", x_short: "p", guides: [1 / count] };
  const line = (each, y, dots) => ({ name: each.text, colour: each.colour, variant: each.variant, x: GRID, y: y.map((value) => (Number.isFinite(value) ? value : null)), dots });
  views.w.update({ ...ends, title: "Weight w, with taper", y_label: "w", series: compared.map((each) => line(each, each.w)), top: tall(compared[0].w), caption: "The L1 norm of the derivative with respect to the logits of an example. The axis is scaled to the first weighting; others may exceed it. The vertical line is p = 1/C." });
  views.density.update({ ...ends, title: "Emphasis density", y_label: "w / ∫ w dp", series: compared.map((each) => line(each, each.h, each.dots)), top: tall(compared.flatMap(({ h }) => h)), caption: "w divided by its integral over [0, 1], so that areas are 1 and shapes can be compared. Dots are modes. Without taper." });
  const potentials = compared.filter((each) => each.objective).map((each) => ({ ...line(each, each.objective), x: INNER }));
  const lowest = Math.min(0, ...potentials.slice(0, 1).flatMap((series) => series.y));
  views.potential.update({ ...ends, title: "Objective", y_label: "L", bottom: lowest, series: potentials, top: potentials.length ? tall(potentials[0].y) : 1, caption: "The function whose gradient training follows at a fixed scale; for a loss, the loss itself. Under batch normalisation, at a frozen normaliser." });
  const shares = compared.map((each) => [each.text, each.shares]);
  views.share.update({ kind: "bars", title: "Share of the weight by tenths of p", x_label: "p", y_label: "share of the weight", percent: true, names: TENTHS.map(([low]) => `${low}–${Number((low + 0.1).toFixed(1))}`), sets: shares, colours: compared.map((each) => each.colour), caption: "For p uniform on [0, 1]." });
}

// the upper end of an axis: above all finite values, unless one end diverges
function tall(values) {
  const sorted = finite(values).sort((a, b) => a - b);
  const top = sorted[sorted.length - 1];
  const usual = sorted[Math.floor(0.97 * (sorted.length - 1))];
  return Math.max(1e-9, (top > 6 * usual && values.some((value) => !Number.isFinite(value)) ? 2 * usual : top) * 1.06);
}

const MAX_EXAMPLES = 64;

// {probabilities}, or {problem}: a message
function readBatch(text) {
  const words = text.split(/[\s,;]+/).filter(Boolean);
  const wrong = words.find((word) => !(Number(word) >= 0 && Number(word) <= 1));
  if (wrong !== undefined) return { problem: `“${wrong}” is not a number from 0 to 1.` };
  if (!words.length) return { problem: "Give at least one number from 0 to 1." };
  if (words.length > MAX_EXAMPLES) return { problem: `At most ${MAX_EXAMPLES} examples can be shown; there are ${words.length}.` };
  return { probabilities: words.map(Number) };
}

function drawBatch(compared, probabilities, view) {
  const results = compared.map((each) => batch(each.tapered, probabilities));
  const sizes = compared.map((each, i) => `${each.text} ${number(results[i].effective, 3)}`).join(", ");
  view.update({ kind: "bars", title: "Weights in this batch", x_label: "p of the example", y_label: "share of the batch", percent: true, names: probabilities.map(String), sets: compared.map((each, i) => [each.text, results[i].shares]), colours: compared.map((each) => each.colour), caption: `Shares of the derivative of the batch. Effective number of examples, of ${probabilities.length}: ${sizes}.` });
}

function factsTable(compared) {
  const rows = compared.map((each) => [
    each.text,
    each.mode === null ? "none" : [each.mode].flat().map((at) => number(at)).join(" and "),
    number(each.z),
    number(each.variance),
    number(each.variance / (each.z * each.z)),
    percent(each.hard),
    `${number(each.range[0])} to ${number(each.range[1])}`,
    each.range.every(Number.isFinite) ? "yes" : "no",
  ]);
  return plainTable(["weighting", "mode", "∫ w dp", "variance", "of w / ∫ w", "on p < ½", "objective", "bounded"], rows, "The numbers of each weighting");
}

// A slider and a number field for one parameter, kept in step.
const TAPERS = [0, ...[-9, -8, -7, -6, -5, -4, -3, -2, -1].flatMap((k) => [Number(`1e${k}`), Number(`5e${k}`)])];

function knobView({ name, low, high, step, start, least, most, stops, integer }, changed) {
  const id = newId("knob");
  const nearest = (value) => stops.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));
  const toSlider = (value) => (stops ? stops.indexOf(nearest(value)) : value);
  const slider = el("input", {
    type: "range",
    id,
    min: stops ? 0 : low,
    max: stops ? stops.length - 1 : high,
    step: stops ? 1 : step,
    value: toSlider(start),
    "aria-valuetext": String(start),
    oninput: () => set(stops ? stops[Number(slider.value)] : Number(slider.value), "slider"),
  });
  const field = el("input", {
    type: "number",
    step: "any",
    value: start,
    "aria-label": `${name}, exact value`,
    oninput: () => set(field.value === "" ? NaN : Number(field.value), "field"),
  });
  let [value, changedByReader] = [start, false];

  function set(next, from) {
    const wrong = !Number.isFinite(next) || (least !== null && least !== undefined && next < least) || (most !== undefined && next > most) || (integer && !Number.isInteger(next));
    field.classList.toggle("wrong", wrong);
    field.setAttribute("aria-invalid", wrong);
    if (wrong) return;
    changedByReader = true;
    show(next, from);
    changed();
  }

  function show(next, from) {
    value = next;
    if (from !== "slider") slider.value = toSlider(next);
    if (from !== "field") field.value = next;
    slider.setAttribute("aria-valuetext", String(next));
  }

  const element = el("div", { class: "knob", "data-name": name }, el("label", { htmlFor: id }, name), slider, field);
  // change the start value, unless the reader has changed the value
  const startFrom = (next) => { if (!changedByReader) show(next); };
  return { element, get value() { return value; }, name, startFrom };
}

// a weighting as a Python expression, lists as tuples
const tuple = (value) => (Array.isArray(value) ? `(${value.map(tuple).join(", ")})` : String(value));
const asPython = (name, values) => `${name}(${Object.entries(values).map(([key, value]) => `${key}=${tuple(value)}`).join(", ")})`;

const entryOf = (catalogue, name) => catalogue.find((each) => each.name === name);

// a list of weightings, with sliders for the parameters of the chosen one
function chooser(legend, catalogue, initial, changed) {
  const id = newId("weighting");
  const select = el("select", { id, onchange: () => { knobs = make(); changed(); } },
    catalogue.map((entry) => el("option", { value: entry.name, selected: entry.name === initial.name }, entry.name)));
  const about = el("p", { class: "about" });
  const place = el("div");
  const entry = () => entryOf(catalogue, select.value);

  function make() {
    const values = select.value === initial.name ? initial.values : {};
    const made = entry().knobs.map((knob) => knobView({ ...knob, start: knob.name in values ? values[knob.name] : knob.start }, changed));
    about.textContent = entry().about;
    place.replaceChildren(...made.map((knob) => knob.element));
    return made;
  }

  let knobs = make();
  const element = el("fieldset", null, el("legend", null, legend), el("label", { htmlFor: id, class: "above" }, "Weighting"), select, about, place);

  // the parameters for the formulas, and the weighting in Python
  function state(count) {
    const { name, taper, classes, points } = entry();
    const values = points
      ? { points: points.map((p, i) => [p, knobs[i].value]) }
      : { ...Object.fromEntries(knobs.map((knob) => [knob.name, knob.value])), ...(classes && { [classes]: count }) };
    const plain = weightingOf({ name, values });
    const positive = INNER.some((p) => weight(plain, p, 1 - p) > 0);
    const problem = positive ? null : `${name}: these parameters are not allowed, because w must be above 0 for some p.`;
    return { name, values, text: asPython(name, values), ownTaper: taper, problem };
  }
  return { element, state };
}
