// What was retrieved: the scores, the CMC curve, and for every query its nearest tracklets, right and wrong.
const { retrieval } = content;
const who = (tracklet) => {
  const person = tracklet.person === 0 ? "distractor" : `person ${tracklet.person}`;
  return `${person}, camera ${tracklet.camera}`;
};

function shot(tracklet, first, mark, alt) {
  return [
    tracklet.image ? el("img", { src: tracklet.image, alt, width: 76, height: 128 }) : el("span", null, tracklet.text),
    el("strong", null, mark),
    el("span", null, first),
    el("span", { title: tracklet.name }, who(tracklet)),
  ];
}

function answerView(query) {
  const asked = retrieval.tracklets[query.row];
  const found = query.ranked.map(([row, similarity, right], i) => {
    const mark = right ? "✓ right" : "✗ wrong";
    const alt = `Rank ${i + 1}, ${right ? "right" : "wrong"}: ${who(retrieval.tracklets[row])}`;
    return el("li", { class: `shot ${right ? "right" : "false"}` },
      shot(retrieval.tracklets[row], `${i + 1}: ${similarity.toFixed(3)}`, mark, alt));
  });
  const told = query.matches
    ? `AP ${percent(query.ap)}, first match at rank ${number(query.first)}, ${number(query.matches)} in the gallery`
    : "no match in the gallery";
  const title = el("h3", null, `Query ${query.number}: ${who(asked)} `, el("small", null, `tracklet ${asked.name}: ${told}`));
  const strip = el("div", { class: "ranked", tabindex: 0, role: "region", "aria-label": `Nearest to query ${query.number}` },
    el("div", { class: "shot" }, shot(asked, "", "query", `Query ${query.number}: ${who(asked)}`)),
    el("ol", { role: "list" }, found));
  return el("li", { class: "answer" }, title, strip);
}

const ORDERS = {
  worst: ["Lowest AP first", (a, b) => a.ap - b.ap],
  best: ["Highest AP first", (a, b) => b.ap - a.ap],
  listed: ["In their own order", (a, b) => a.number - b.number],
};
const KINDS = {
  all: ["all", () => true],
  missed: ["wrong at rank 1", (query) => query.first !== 1],
  hit: ["right at rank 1", (query) => query.first === 1],
};

function queriesSection() {
  const views = retrieval.queries.map((query) => ({ query, element: answerView(query) }));
  const list = el("ul", { class: "answers", role: "list" });
  const choice = (word, options) => el("select", { id: newId(word), onchange: () => show() },
    Object.entries(options).map(([value, [name]]) => el("option", { value }, name)));
  const [order, kind, told] = [choice("order", ORDERS), choice("kind", KINDS), el("output")];
  function show() {
    const chosen = views.filter(({ query }) => KINDS[kind.value][1](query));
    chosen.sort((a, b) => ORDERS[order.value][1](a.query, b.query) || a.query.number - b.query.number);
    list.replaceChildren(...chosen.map(({ element }) => element));
    told.textContent = `${chosen.length} of ${views.length} shown`;
  }
  show();
  const left = retrieval.asked - views.length;
  return el("section", { "aria-labelledby": "queries" }, el("h2", { id: "queries" }, "Queries"),
    el("p", null, `Each row is a query, by the middle frame of its tracklet, and the nearest tracklets of the gallery with their ${retrieval.measure}. Left out, as the rule has it, are junk and what the query's own camera saw of the same person. A green frame and a tick mean the right person before another camera, a dashed red frame and a cross anybody else.`),
    left > 0 ? el("p", null, `${number(left)} more queries were scored and have no room on this page; those shown are spread evenly from the lowest AP to the highest.`) : null,
    el("p", { class: "choose" }, el("span", null, el("label", { htmlFor: order.id }, "Order"), " ", order), el("span", null, el("label", { htmlFor: kind.id }, "Show"), " ", kind), told),
    list);
}

const facts = retrieval.facts.map(([name, value]) => el("li", null, el("strong", null, percent(value)), el("span", null, name)));
const curve = figureView();
document.getElementById("main").append(
  el("section", { "aria-labelledby": "scores" }, el("h2", { id: "scores" }, "Scores"),
    el("p", null, retrieval.summary), el("ul", { class: "facts", role: "list" }, facts),
    el("div", { class: "curve" }, curve.element)),
  queriesSection(),
  el("section", { "aria-labelledby": "provenance" }, el("h2", { id: "provenance" }, "Provenance"),
    plainTable(["what", "value"], retrieval.provenance, "How this was made")));
curve.update({ ...retrieval.curve, series: retrieval.curve.series.map((series) => ({ ...series, colour: 0 })) });
document.getElementById("version").textContent = content.version;
