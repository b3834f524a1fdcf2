// The page of a retrieval: scores, the CMC curve, and the nearest tracklets of each query.
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
  const tracklet = retrieval.tracklets[query.row];
  const found = query.ranked.map(([row, similarity, right], i) => {
    const mark = right ? "✓ right" : "✗ wrong";
    const alt = `Rank ${i + 1}, ${right ? "right" : "wrong"}: ${who(retrieval.tracklets[row])}`;
    return el("li", { class: `shot ${right ? "right" : "false"}` },
      shot(retrieval.tracklets[row], `${i + 1}: ${similarity.toFixed(3)}`, mark, alt));
  });
  const scores = query.matches
    ? `AP ${percent(query.ap)}, first match at rank ${number(query.first)}, ${number(query.matches)} in the gallery`
    : "no match in the gallery";
  const title = el("h3", null, `Query ${query.number}: ${who(tracklet)} `, el("small", null, `tracklet ${tracklet.name}: ${scores}`));
  const strip = el("div", { class: "ranked", tabindex: 0, role: "region", "aria-label": `Nearest to query ${query.number}` },
    el("div", { class: "shot" }, shot(tracklet, "", "query", `Query ${query.number}: ${who(tracklet)}`)),
    el("ol", { role: "list" }, found));
  return el("li", { class: "answer" }, title, strip);
}

const ORDERS = {
  worst: ["Lowest AP first", (a, b) => a.ap - b.ap],
  best: ["Highest AP first", (a, b) => b.ap - a.ap],
  listed: ["Query number", (a, b) => a.number - b.number],
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
  const [order, kind, count] = [choice("order", ORDERS), choice("kind", KINDS), el("output")];
  function show() {
    const chosen = views.filter(({ query }) => KINDS[kind.value][1](query));
    chosen.sort((a, b) => ORDERS[order.value][1](a.query, b.query) || a.query.number - b.query.number);
    list.replaceChildren(...chosen.map(({ element }) => element));
    count.textContent = `${chosen.length} of ${views.length} shown`;
  }
  show();
  const left = retrieval.total - views.length;
  return el("section", { "aria-labelledby": "queries" }, el("h2", { id: "queries" }, "Queries"),
    el("p", null, `Each row is a query, shown by the middle frame of its tracklet, and its nearest tracklets in the gallery with their ${retrieval.measure}. By the rule, junk and tracklets of the same person from the same camera are left out. A green frame and a tick mark a match, a dashed red frame and a cross another person.`),
    left > 0 ? el("p", null, `${number(left)} more queries were scored but are not shown; those shown are evenly spread from the lowest AP to the highest.`) : null,
    el("p", { class: "choose" }, el("span", null, el("label", { htmlFor: order.id }, "Order"), " ", order), el("span", null, el("label", { htmlFor: kind.id }, "Show"), " ", kind), count),
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
