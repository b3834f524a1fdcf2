// The report: table of runs, curves, details of a group, provenance; and the explorer, here or on a page of its own.
const MAX_LINES = 8;

function buildReport(report, root) {
  if (report.problems.length) {
    root.append(el("div", { class: "note" }, el("p", null, "Left out:"), el("ul", null, report.problems.map((text) => el("li", null, text)))));
  }
  const place = el("div");
  const tabs = report.sets.map((set, i) => el("button", { type: "button", onclick: () => open(i) }, `${set.name} (${number(set.groups.length)})`));
  if (tabs.length > 1) root.append(el("div", { class: "tabs", role: "group", "aria-label": "Data set" }, el("span", null, "Data set"), tabs));
  root.append(place);

  function open(i) {
    tabs.forEach((tab, k) => tab.setAttribute("aria-pressed", k === i));
    place.querySelectorAll("figure").forEach((figure) => figures.forEach((view) => view.element === figure && figures.delete(view)));
    place.replaceChildren();
    buildSet(report, report.sets[i], place)();
  }
  return () => open(0);
}

// the report on one data set
function buildSet(report, set, root) {
  const { groups } = set;
  const byScore = groups.map((_, i) => i).sort((a, b) => ((groups[b].final || [-1])[0]) - ((groups[a].final || [-1])[0]));
  const chosen = new Set(byScore.slice(0, Math.min(6, groups.length)));
  const table = runsTable(groups, chosen, () => redraw());
  root.append(table.element);
  const views = set.figures.map((spec) => [spec, figureView()]);
  const legend = el("ul", { class: "legend shared", "aria-label": "Legend of all curves" });
  root.append(el("section", { "aria-labelledby": "curves" }, el("h2", { id: "curves" }, "Curves"),
    legend, el("div", { class: "figures" }, views.map(([, view]) => view.element))));
  const details = detailsSection(set, byScore[0] || 0);
  root.append(details.element, provenance(report, set));

  function redraw() {
    const order = [...chosen].sort((a, b) => a - b);
    const colour = (i) => order.indexOf(i) % MAX_LINES;
    legend.replaceChildren(...order.map((i) => legendItem(groups[i].label, colour(i))));
    table.paint(colour);
    for (const [spec, view] of views) {
      const series = spec.series
        .filter((each) => chosen.has(each.group))
        .map((each) => ({ ...each, x: report.xs[each.x], colour: colour(each.group) }));
      view.element.hidden = series.length === 0;
      if (series.length) view.update({ ...spec, series, shared: true });
    }
  }
  return () => { redraw(); details.show(); };
}

const sentence = (name) => name === "lr" ? "Learning rate" : name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");

function runsTable(groups, chosen, changed) {
  const score = (pair) => (pair ? `${(100 * pair[0]).toFixed(2)}${pair[1] === null ? "" : ` ± ${(100 * pair[1]).toFixed(2)}`}` : "–");
  const varying = [...new Set(groups.flatMap((group) => Object.keys(group.varying)))];
  const swatches = new Map();
  const text = (name, pick) => ({ name, value: pick, left: groups.some((group) => typeof pick(group) === "string"), cell: (group) => { const value = pick(group); return value === null || value === undefined ? "–" : String(value); } });
  const noisy = groups.some((group) => group.holdout !== "test");
  const differs = (name) => new Set(groups.map((group) => group[name])).size > 1;
  // what is the same for all is a sentence, not a column
  const facts = { holdout: "Tested on", net: "Net", noise: "Noise", measured: "Noisy labels" };
  const shown = (name, group) => (name === "measured" ? percent(group.measured) : group[name] || "none");
  const same = Object.keys(facts).filter((name) => !differs(name) && groups[0][name] !== null);
  const columns = [
    { name: "Draw", plain: true, value: () => 0, cell: (group) => checkbox(group) },
    text("Loss or method", (group) => group.objective),
    { name: "Final %", value: (group) => group.final && group.final[0], cell: (group) => score(group.final) },
    ...varying.map((name) => text(sentence(name), (group) => (group.varying[name] === undefined ? null : group.varying[name]))),
    { name: "Best %", value: (group) => group.best && group.best[0], cell: (group) => score(group.best) },
    { name: "Runs done", value: (group) => group.done, cell: (group) => `${group.done} of ${group.seeds.length}${group.diverged ? `, ${group.diverged} diverged` : ""}` },
    ...Object.keys(facts).filter(differs).map((name) => (name === "measured"
      ? { name: facts[name], value: (group) => group.measured, cell: (group) => percent(group.measured) }
      : text(facts[name], (group) => group[name]))),
  ];

  function checkbox(group) {
    const i = groups.indexOf(group);
    const box = el("input", {
      type: "checkbox",
      checked: chosen.has(i),
      "aria-label": `Draw ${group.label}`,
      onchange: () => {
        if (box.checked) chosen.add(i); else chosen.delete(i);
        if (chosen.size > MAX_LINES) { chosen.delete(i); box.checked = false; }
        hint.textContent = chosen.size >= MAX_LINES ? `At most ${MAX_LINES} groups can be drawn.` : "";
        changed();
      },
    });
    const mark = legendItem("", 0).firstChild;
    swatches.set(i, mark);
    return el("span", { class: "draw" }, box, mark);
  }

  const table = sortableTable(columns, groups, { label: "Table of runs", initial: columns.findIndex((column) => column.name === "Final %"), descending: true });
  const hint = el("output");
  const paint = (colour) => swatches.forEach((mark, i) => {
    mark.style.visibility = chosen.has(i) ? "visible" : "hidden";
    mark.firstChild.setAttribute("class", `line c${chosen.has(i) ? colour(i) : 0} v0`);
  });
  const filter = el("input", { type: "search", id: newId("filter"), oninput: () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.filter((group) => words.every((word) => JSON.stringify(group).toLowerCase().includes(word)));
  } });
  const element = el("section", { "aria-labelledby": "runs" },
    el("h2", { id: "runs" }, "Runs"),
    el("p", null, "Runs that differ only in their seed share a line: mean ± standard deviation of the test accuracy. Final is after the last iteration. Best is the highest of all evaluations, as papers often report; it is selected on the test set and therefore optimistic."),
    noisy ? el("p", null, "The noisy hold-out is part of the data, held out with its given labels: where these are wrong, a correct prediction counts as an error. Only a test set with verified labels measures accuracy.") : null,
    groups.some((group) => group.diverged) ? el("p", null, "A diverged run has a net with non-finite outputs: its accuracy is that of always predicting one class. Try a smaller learning rate.") : null,
    same.length ? el("p", null, same.map((name) => `${facts[name]}: ${shown(name, groups[0])}.`).join(" ")) : null,
    groups.length > 8 ? el("p", { class: "filter" }, el("label", { htmlFor: filter.id }, "Filter"), " ", filter) : null,
    table.element, el("p", { class: "hint" }, hint));
  return { element, paint };
}

function detailsSection(set, first) {
  const select = el("select", { id: newId("group"), onchange: () => show() },
    set.groups.map((group, i) => el("option", { value: i, selected: i === first }, group.label)));
  const place = el("div", { class: "figures" });
  let views = [];
  function show() {
    views.forEach((view) => figures.delete(view));
    const specs = set.details[Number(select.value)];
    views = specs.map(() => figureView());
    place.replaceChildren(...views.map((view) => view.element));
    if (!specs.length) place.append(el("p", null, "No details were recorded for these runs, or they did not fit on this page: report on fewer runs."));
    views.forEach((view, i) => {
      const spec = specs[i];
      const series = (spec.series || []).map((each, k) => ({ ...each, colour: each.group === null ? 4 : k % 8 }));
      view.update(spec.kind === "lines" ? { ...spec, series } : spec);
    });
  }
  const element = el("section", { "aria-labelledby": "details" }, el("h2", { id: "details" }, "Details"),
    el("p", null, el("label", { htmlFor: select.id }, "Group"), " ", select), place);
  return { element, show };
}

function provenance(report, set) {
  const entries = set.runs.map((run) => {
    const details = el("details", { ontoggle: () => { if (details.open && details.children.length === 1) details.append(facts(run, report)); } },
      el("summary", null, run.folder));
    return details;
  });
  return el("section", { "aria-labelledby": "provenance" }, el("h2", { id: "provenance" }, "Provenance"),
    el("p", null, "Everything that decides the result of a run, and where it was computed."), entries);
}

function facts(run, report) {
  const rows = [
    ["state", `${run.state}, last evaluation at iteration ${number(run.step)}${run.seconds ? `, ${number(run.seconds)} s` : ""}`],
    ["hash of the run", run.hash],
    ["hash of the data", run.data],
    ["hash of the labels", run.labels],
    ["training examples", number(run.examples)],
    ...Object.entries(run.run).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)]),
    ...run.environments.flatMap((i, k) => Object.entries(report.environments[i]).map(([name, value]) => [`${k ? `later ${k}: ` : ""}${name.replaceAll("_", " ")}`, String(value)])),
  ];
  return plainTable(["what", "value"], rows, `Provenance of ${run.folder}`);
}

const main = document.getElementById("main");
const tasks = []; // after all elements have their width
if (content.report) {
  const place = el("div", { id: "report" });
  main.append(place);
  tasks.push(buildReport(content.report, place));
}
const place = el("section", { id: "explorer", "aria-labelledby": "explore" });
if (content.report) place.append(el("h2", { id: "explore" }, "Explorer"));
else place.setAttribute("aria-label", "Explorer");
main.append(place);
const explorer = buildExplorer(content.explore, place, content.report ? 2 : 1);
tasks.push(explorer.update);
tasks.forEach((task) => task());
document.getElementById("version").textContent = content.version;

// for the browser's console, and for tests against the library
window.reweigh = { weightingOf, weight, integral, variance, share, mode, potentialOf, potentialRange, batch, margin, explorer };
