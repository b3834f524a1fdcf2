// What is estimated of the noise: the rate, the largest mistakes, and the whole matrix where it is small.
const HEAT_LEVELS = 8;

function heatTable(matrix, classes) {
  const level = (value) => Math.min(HEAT_LEVELS - 1, Math.floor(Math.sqrt(value) * HEAT_LEVELS));
  const head = el("tr", null, el("th", { scope: "col" }, "true \\ given"), classes.map((name) => el("th", { scope: "col" }, name)));
  const rows = matrix.map((row, i) => el("tr", null, el("th", { scope: "row" }, classes[i]),
    row.map((value) => el("td", { class: `heat h${level(value)}` }, percent(value)))));
  return scrolling(el("table", null, el("thead", null, head), el("tbody", null, rows)), "Transition matrix");
}

const between = (low, high) => `${(100 * low).toFixed(1)} to ${percent(high)}`;

function noiseSection({ noise, classes }) {
  const [rate, low, high] = noise.rate;
  const mistakes = noise.mistakes.map(([true_, given, value, least, most]) =>
    [`${classes[true_]} → ${classes[given]}`, percent(value), between(least, most)]);
  return el("section", { class: "noise", "aria-labelledby": "noise" },
    el("h2", { id: "noise" }, "The noise"),
    el("p", { class: "rate" }, el("strong", null, percent(rate)), ` of the labels are wrong, by estimate; the ${percent(noise.level, 0)} interval is ${between(low, high)}.`),
    mistakes.length ? [el("h3", null, "The likeliest mistakes"),
      el("div", { class: "mistakes" }, plainTable(["true → given", "chance", "interval"], mistakes, "The likeliest mistakes"))] : null,
    noise.transition ? [el("h3", null, "From the true class to the given label"),
      el("p", null, "Each row says how labels of one true class are given; it adds up to 100 %."),
      heatTable(noise.transition, classes)] : null);
}
