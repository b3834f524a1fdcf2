// The explorer: turn knobs, and everything that follows from w is drawn at once.
const GRID = Array.from({ length: 201 }, (_, i) => i / 200);
const INNER = GRID.slice(1, -1);
const TENTHS = Array.from({ length: 10 }, (_, i) => [i / 10, (i + 1) / 10]);
const PUBLISHED_TAPER = 5e-7;

function buildExplorer({ catalogue, curveAt, start }, root, level) {
  const changed = () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(update); };
  let [waiting, probabilities] = [0, []];
  const first = chooser("Weighting", catalogue, curveAt, start, changed);
  const second = chooser("Compare with", catalogue, curveAt, { name: "MAE", values: {} }, changed);
  const taper = knobView({ name: "taper", start: PUBLISHED_TAPER, least: 0, stops: TAPERS }, changed);
  const classes = knobView({ name: "classes", low: 2, high: 100, step: 1, start: start.classes || 10, least: 2, whole: true }, changed);
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
    el("fieldset", null, el("legend", null, "A batch"), el("label", { htmlFor: samples.id, class: "above" }, "p of its examples"), samples, refusal));
  root.append(
    el("p", null, "A weighting w(p) says how much an example counts whose label has probability p. Turn the knobs; every curve is computed here, as the library computes it."),
    el("div", { class: "explorer" }, controls, el("div", { class: "results" },
      problem, python.element, command.element, numbers,
      el("div", { class: "figures" }, Object.values(views).map((view) => view.element)))));

  function update() {
    const count = Math.max(2, Math.round(classes.value));
    const [a, b] = [first.state(count), second.state(count)];
    problem.textContent = a.problem || b.problem || "";
    if (a.problem || b.problem) return;
    const own = a.kind === "loss" ? 0 : PUBLISHED_TAPER;
    taper.startFrom(own);
    const tapered = taper.value === own ? "" : `, taper=${taper.value}`;
    python.set(`criterion = reweigh.Criterion(reweigh.${a.text}${tapered})`);
    command.set(`reweigh train --data digits --net mlp-128 --weighting "${a.text}"${taper.value === own ? "" : ` --taper ${taper.value}`}`);
    const compared = [
      { ...a, colour: 0, taper: taper.value },
      { ...b, colour: 1, taper: b.kind === "loss" ? 0 : PUBLISHED_TAPER },
      { name: "CCE", values: {}, text: "CCE()", colour: 2, taper: 0 },
      { name: "GCE", values: { q: 0.7 }, text: "GCE(q=0.7)", colour: 3, taper: 0 },
    ].map((each, i) => measure({ ...each, variant: Math.min(i, 2) }));
    numbers.replaceChildren(factsTable(compared));
    const at = weight(compared[0].tapered, 1 / count, 1 - 1 / count);
    begin.textContent = `A fresh net gives every class about 1/C = ${number(1 / count)}: there w = ${number(at)}, of which the label's logit gets −${number(at / 2)} and each of the ${count - 1} others +${number(at / 2 / (count - 1))}. Symmetric noise can be told from signal below a rate of (C − 1)/C = ${number((count - 1) / count)}.`;
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

// all that follows from one weighting; most of those on the page stay as they are while a slider moves
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
  views.w.update({ ...ends, title: "Weight w, with its taper", y_label: "w", series: compared.map((each) => line(each, each.w)), top: tall(compared[0].w), caption: "The L1 norm of the derivative that an example hands to its logits. The scale follows the first weighting; others may leave it. The upright line is p = 1/C." });
  views.density.update({ ...ends, title: "Emphasis density", y_label: "w / ∫ w dp", series: compared.map((each) => line(each, each.h, each.dots)), top: tall(compared.flatMap(({ h }) => h)), caption: "w divided by its integral over [0, 1], so that areas are 1 and shapes compare; dots are modes. Taper is left out." });
  const potentials = compared.filter((each) => each.objective).map((each) => ({ ...line(each, each.objective), x: INNER }));
  const lowest = Math.min(0, ...potentials.slice(0, 1).flatMap((series) => series.y));
  views.potential.update({ ...ends, title: "Objective", y_label: "L", bottom: lowest, series: potentials, top: potentials.length ? tall(potentials[0].y) : 1, caption: "What the gradient with fixed scale is the gradient of; for a loss, the loss itself. Under batch normalisation it holds for as long as the normaliser stands still." });
  const shares = compared.map((each) => [each.text, each.shares]);
  views.share.update({ kind: "bars", title: "Share of the weight by tenths of p", x_label: "p", y_label: "share of all weight", percent: true, names: TENTHS.map(([low]) => `${low}–${Number((low + 0.1).toFixed(1))}`), sets: shares, colours: compared.map((each) => each.colour), caption: "For p spread evenly over [0, 1]." });
}

// the upper end of an axis: all finite values, unless one end runs away to infinity
function tall(values) {
  const sorted = finite(values).sort((a, b) => a - b);
  const top = sorted[sorted.length - 1];
  const usual = sorted[Math.floor(0.97 * (sorted.length - 1))];
  return Math.max(1e-9, (top > 6 * usual && values.some((value) => !Number.isFinite(value)) ? 2 * usual : top) * 1.06);
}

const MOST_EXAMPLES = 64;

// {probabilities}, or {problem}: a sentence about what is wrong
function readBatch(text) {
  const words = text.split(/[\s,;]+/).filter(Boolean);
  const wrong = words.find((word) => !(Number(word) >= 0 && Number(word) <= 1));
  if (wrong !== undefined) return { problem: `“${wrong}” is not a number from 0 to 1.` };
  if (!words.length) return { problem: "Give at least one number from 0 to 1." };
  if (words.length > MOST_EXAMPLES) return { problem: `At most ${MOST_EXAMPLES} examples can be shown, not ${words.length}.` };
  return { probabilities: words.map(Number) };
}

function drawBatch(compared, probabilities, view) {
  const results = compared.map((each) => batch(each.tapered, probabilities));
  const sizes = compared.map((each, i) => `${each.text} ${number(results[i].effective, 3)}`).join(", ");
  view.update({ kind: "bars", title: "Who gets how much of this batch", x_label: "p of the example", y_label: "share of the batch", percent: true, names: probabilities.map(String), sets: compared.map((each, i) => [each.text, results[i].shares]), colours: compared.map((each) => each.colour), caption: `Shares of the batch's whole derivative. Examples that really pull, of ${probabilities.length}: ${sizes}.` });
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
