// The page of suspects: review the most suspicious examples, a gallery by class, and the estimated noise.
// Review: one card per example, with buttons and keys to decide.
const KEYS = { k: "keep", f: "fix", d: "drop" };

function picture(example, classes) {
  if (example.image) {
    const image = { src: example.image, alt: `example ${example.index}, labelled ${classes[example.given]}` };
    return el("button", { type: "button", class: "zoom", "aria-label": `Enlarge example ${example.index}`, onclick: () => zoom(example, classes) }, el("img", image));
  }
  if (example.text !== undefined) return el("blockquote", null, example.text);
  return el("dl", null, example.values.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, typeof value === "string" ? value : number(value, 6)))));
}

// the picture at twice its size or more, with the place of the original
function zoom(example, classes) {
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = el("dialog", { class: "enlarged", "aria-label": `Example ${example.index}`, onclose: () => dialog.remove() },
    el("img", { src: example.image, alt: `example ${example.index}, labelled ${classes[example.given]}` }),
    el("p", null, `${classes[example.given]} → ${classes[example.suggested]}`), el("p", { class: "source" }, example.path || sourceOf(example)), close);
  document.body.append(dialog);
  dialog.showModal();
}

function sourceOf({ source, index }) {
  if (source === null) return `example ${index}`;
  return /^\d+$/.test(source) ? `row ${source}` : source;
}

function card(example, classes, store) {
  const { index, given, suggested } = example;
  const before = store.get(index);
  let label = before && before.kind === "fix" ? before.label : suggested;

  const buttons = DECISIONS.map((kind) =>
    el("button", { type: "button", class: kind, onclick: () => decide(kind) }, kind[0].toUpperCase() + kind.slice(1)));
  // the options of all cards would be too many elements: they are added when a list is opened
  const select = el("select", { "aria-label": `New label of example ${index}`, onfocus: () => fillSelect(), onpointerdown: () => fillSelect(), onchange: () => {
    label = Number(select.value);
    if (label === given) store.remove(index);
    else decide("fix", true);
    show();
  } });
  function fillSelect() {
    if (select.options.length === classes.length) return;
    select.replaceChildren(...classes.map((name, k) => el("option", { value: k, selected: k === label }, name)));
  }
  select.append(el("option", { value: label, selected: true }, classes[label]));

  function decide(kind, again = false) {
    const now = store.get(index);
    if (kind === "fix" && label === given) { if (!again) select.focus(); return false; }
    if (now && now.kind === kind && !again) store.remove(index);
    else store.set(index, { given, kind, label: kind === "fix" ? label : given });
    show();
    return true;
  }

  function show() {
    const now = store.get(index);
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", Boolean(now && now.kind === DECISIONS[i])));
    buttons[1].disabled = label === given;
    element.dataset.decision = now ? now.kind : "";
  }

  const element = el("div", { class: "card", role: "group", tabindex: -1, "aria-label": `Example ${index}: given ${classes[given]}, suggested ${classes[suggested]}` },
    picture(example, classes),
    el("p", { class: "pair" }, el("span", { class: "given" }, classes[given]), " → ", el("strong", null, classes[suggested])),
    el("p", { class: "numbers" }, `score ${number(example.score, 3)}, p ${number(example.p_given, 2)} → ${number(example.p_suggested, 2)}`),
    el("p", { class: "source" }, sourceOf(example), example.issue ? null : " (not an issue)"),
    el("div", { class: "decide" }, buttons), select);
  show();
  return { element, example, show, decide, undo: () => { store.remove(index); show(); }, decided: () => Boolean(store.get(index)) };
}

function reviewSection(suspects, store) {
  const { classes } = suspects;
  const cards = suspects.shown.slice(0, suspects.review).map((example) => card(example, classes, store));
  const wide = cards.length && !cards[0].example.image;
  const list = el("ul", { class: wide ? "cards wide" : "cards", role: "list" }, cards.map(({ element }) => el("li", null, element)));
  const shown = () => cards.filter(({ element }) => !element.parentElement.hidden);

  const pairOf = ({ given, suggested }) => `${given} ${suggested}`;
  const counts = new Map();
  cards.forEach(({ example }) => counts.set(pairOf(example), (counts.get(pairOf(example)) || 0) + 1));
  const pairs = [...counts].sort(([, a], [, b]) => b - a);
  const named = (pair) => pair.split(" ").map((k) => classes[k]).join(" → ");
  const pair = el("select", { onchange: () => filter() },
    el("option", { value: "" }, `all (${cards.length})`),
    pairs.map(([key, count]) => el("option", { value: key }, `${named(key)} (${count})`)));
  const state = el("select", { onchange: () => filter() },
    [["", "all"], ["open", "undecided"], ["done", "decided"]].map(([value, words]) => el("option", { value }, words)));

  // when a filter changes, not after each decision: no card should disappear under the pointer
  function filter() {
    cards.forEach(({ element, example, decided }) => {
      const fits = (!pair.value || pairOf(example) === pair.value) && (!state.value || decided() === (state.value === "done"));
      element.parentElement.hidden = !fits;
    });
    none.hidden = shown().length > 0;
    reach(shown()[0]);
  }

  // one card at a time can be reached with Tab, the others with arrow keys
  function reach(target, focus = false) {
    if (!target) return;
    cards.forEach(({ element }) => { element.tabIndex = element === target.element ? 0 : -1; });
    if (focus) { target.element.focus(); target.element.scrollIntoView({ block: "nearest" }); }
  }

  list.addEventListener("focusin", (event) => reach(cards.find(({ element }) => element.contains(event.target))));
  list.addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.altKey || event.metaKey) return;
    const visible = shown();
    const at = visible.findIndex(({ element }) => element.contains(event.target));
    if (at < 0) return;
    const top = visible[0].element.offsetTop;
    const across = Math.max(1, visible.filter(({ element }) => element.offsetTop === top).length);
    const goals = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: visible.length - 1 };
    const kind = KEYS[event.key.toLowerCase()];
    if (event.key in goals) reach(visible[Math.min(visible.length - 1, Math.max(0, goals[event.key]))], true);
    else if (kind && visible[at].decide(kind, true)) reach(visible[Math.min(visible.length - 1, at + 1)], true);
    else if (event.key.toLowerCase() === "u") visible[at].undo();
    else return;
    event.preventDefault();
  });

  // one decision for all examples that the filters show and that are not decided yet
  const bulk = el("select", { "aria-label": "Decide on all of these", onchange: () => {
    const open = shown().filter(({ decided }) => !decided());
    if (open.length && confirm(`${bulk.value} ${open.length} examples?`)) open.forEach(({ decide }) => decide(bulk.value, true));
    bulk.value = "";
  } }, el("option", { value: "" }, "Decide all shown…"),
  [["keep", "keep all shown"], ["fix", "fix all shown as suggested"], ["drop", "drop all shown"]].map(([value, words]) => el("option", { value }, words)));

  const counter = el("output", { class: "counter" });
  const save = el("button", { type: "button", class: "save", onclick: () => download("decisions.csv", decisionsCsv(store, classes)) }, "Download decisions.csv");
  const clear = el("button", { type: "button", onclick: () => {
    if (confirm(`Delete all ${store.size} decisions?`)) { store.clear(); cards.forEach(({ show }) => show()); }
  } }, "Delete all");
  const unsafe = el("p", { class: "note" }, "This browser does not store decisions for this page: download them before you close it.");
  const none = el("p", { hidden: true }, "No example matches these filters.");
  function update() {
    const parts = DECISIONS.map((kind) => `${store.count(kind)} ${kind}`);
    counter.textContent = `${number(store.size)} decided: ${parts.join(", ")}`;
    save.disabled = clear.disabled = store.size === 0;
    unsafe.hidden = store.safe;
  }
  store.watch(update);
  update();
  reach(cards[0]);

  const command = copyLine("Command");
  command.set(`reweigh correct ${suspects.folder || "RUN"} --decisions decisions.csv -o corrected`);

  return el("section", { "aria-labelledby": "review" },
    el("h2", { id: "review" }, "Review"),
    el("details", { open: matchMedia("(min-width: 700px)").matches }, el("summary", null, `The ${number(cards.length)} most suspicious examples, the most suspicious first: given label → suggested label.`),
      "Keep confirms the label, Fix replaces it by the one in the list below the buttons, Drop removes the example. ",
      "On a card, arrow keys move to the next; ", el("kbd", null, "K"), " keeps, ", el("kbd", null, "F"), " fixes, ", el("kbd", null, "D"), " drops, ", el("kbd", null, "U"), " undoes."),
    unsafe,
    el("div", { class: "toolbar" },
      el("label", null, "Pair", pair), el("label", null, "Show", state), bulk, counter, save, clear),
    none, list,
    el("p", null, "Decisions are stored in this browser until you delete them. To apply the downloaded file:"), command.element);
}

// Decisions: index -> {given, kind, label}, stored in the browser under the hash of the labels.
const DECISIONS = ["keep", "fix", "drop"];

function decisionStore(key) {
  const name = `reweigh suspects ${key}`;
  const listeners = [];
  let [decisions, safe] = [new Map(), true];
  try {
    decisions = new Map(JSON.parse(localStorage.getItem(name) || "[]"));
  } catch (error) {
    safe = error instanceof SyntaxError; // damaged entry; any other error: no storage
  }

  function changed() {
    try {
      localStorage.setItem(name, JSON.stringify([...decisions]));
    } catch {
      safe = false;
    }
    listeners.forEach((listener) => listener());
  }

  return {
    get: (index) => decisions.get(index),
    set(index, decision) { decisions.set(index, decision); changed(); },
    remove(index) { decisions.delete(index); changed(); },
    clear() { decisions.clear(); changed(); },
    count: (kind) => [...decisions.values()].filter((decision) => decision.kind === kind).length,
    get size() { return decisions.size; },
    get safe() { return safe; },
    watch: (listener) => listeners.push(listener),
    entries: () => [...decisions].sort(([a], [b]) => a - b),
  };
}

// the file for `reweigh correct --decisions`
function decisionsCsv(store, classes) {
  // a cell that a spreadsheet would run gets an apostrophe in front, as in reweigh/lab/csv_text.py
  const runs = (word) => /^'*[=+\-@\t\r]/.test(word) && !/^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$/.test(word);
  const quoted = (word) => `"${runs(word) ? "'" : ""}${word.replaceAll('"', '""')}"`;
  const lines = store.entries().map(([index, { given, kind, label }]) =>
    [index, quoted(classes[given]), quoted(kind), quoted(classes[kind === "fix" ? label : given])].join(","));
  return `${["index,given,decision,label", ...lines].join("\n")}\n`;
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// Gallery: for each class the examples with the lowest p, issues in a red box, and those with the highest.
function gallerySection(suspects) {
  const { classes, shown } = suspects;
  const item = (k) => {
    const example = shown[k];
    const words = example.issue && example.suggested !== example.given ? ` → ${classes[example.suggested]}` : "";
    return el("li", { class: example.issue ? "issue" : null }, picture(example, classes),
      el("span", null, `p ${number(example.p_given, 2)}${words}`));
  };
  const rows = suspects.gallery.map((row) => el("div", { class: "row" },
    el("h3", null, classes[row.label], " ", el("small", null, `${number(row.issues)} of ${number(row.of)} are issues`)),
    el("div", { class: "strips", tabindex: 0, role: "region", "aria-label": `Examples labelled ${classes[row.label]}` },
      el("ul", { class: "strip", role: "list" }, row.low.map(item)),
      row.high.length ? el("ul", { class: "strip normal", role: "list", "aria-label": "Highest p" }, row.high.map(item)) : null)));
  return el("section", { "aria-labelledby": "gallery" },
    el("h2", { id: "gallery" }, "Abnormal examples"),
    el("p", null, "Each row shows the examples of one given label with the lowest p, from the left, and at its end a few with the highest. A red box marks an issue: a label that is probably wrong. Other abnormal examples may show something unrelated, or nothing."),
    rows);
}

// Noise: the estimated rate, the most frequent mistakes, and the transition matrix if it is small.
const HEAT_LEVELS = 8;

function heatTable(matrix, classes) {
  const level = (value) => Math.min(HEAT_LEVELS - 1, Math.floor(Math.sqrt(value) * HEAT_LEVELS));
  const head = el("tr", null, el("th", { scope: "col" }, "true \\ given"), classes.map((name) => el("th", { scope: "col" }, name)));
  const rows = matrix.map((row, i) => el("tr", null, el("th", { scope: "row" }, classes[i]),
    row.map((value) => el("td", { class: `heat h${level(value)}` }, percent(value)))));
  return scrolling(el("table", null, el("thead", null, head), el("tbody", null, rows)), "Transition matrix");
}

const between = (low, high) => `${(100 * low).toFixed(1)} to ${percent(high)}`;

// Confusions: what the issues of each given class are taken for.
function confusionSection({ confusions, classes }) {
  const rows = confusions.map(([given, suggested, count, of]) =>
    [classes[given], classes[suggested], percent(count / of, 0), `${number(count)} of ${number(of)}`]);
  return el("section", { class: "noise", "aria-labelledby": "confusions" },
    el("h2", { id: "confusions" }, "Confusions"),
    el("p", null, "Of those with the first label, an estimated share is of the second class."),
    el("div", { class: "mistakes" }, plainTable(["labelled", "probably", "share", "issues"], rows, "Confusions by class")));
}

function noiseSection({ noise, classes }) {
  const [rate, low, high] = noise.rate;
  const mistakes = noise.mistakes.map(([true_, given, value, least, most]) =>
    [`${classes[true_]} → ${classes[given]}`, percent(value), between(least, most)]);
  return el("section", { class: "noise", "aria-labelledby": "noise" },
    el("h2", { id: "noise" }, "Estimated noise"),
    el("p", { class: "rate" }, el("strong", null, percent(rate)), ` of the labels are wrong (${percent(noise.level, 0)} interval: ${between(low, high)}).`),
    mistakes.length ? [el("h3", null, "Most frequent mistakes"),
      el("div", { class: "mistakes" }, plainTable(["true → given", "probability", "interval"], mistakes, "Most frequent mistakes"))] : null,
    noise.transition ? [el("h3", null, "Transition matrix"),
      el("p", null, "Each row is the distribution of the given labels of one true class."),
      heatTable(noise.transition, classes)] : null);
}

const { suspects } = content;
const store = decisionStore(suspects.key);
document.getElementById("main").append(
  el("p", null, `${number(suspects.issues)} of ${number(suspects.examples)} labels are issues: probably wrong. Score: ${suspects.method}.`),
  reviewSection(suspects, store),
  ...(suspects.confusions.length ? [confusionSection(suspects)] : []),
  ...(suspects.gallery.length ? [gallerySection(suspects)] : []),
  ...(suspects.noise ? [noiseSection(suspects)] : []));
document.getElementById("version").textContent = content.version;
