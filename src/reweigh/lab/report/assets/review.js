// The worst suspects, one card each, with buttons and keys to decide.
const KEYS = { k: "keep", f: "fix", d: "drop" };

function picture(example, classes) {
  if (example.image) return el("img", { src: example.image, alt: `example ${example.index}, labelled ${classes[example.given]}` });
  if (example.text !== undefined) return el("blockquote", null, example.text);
  return el("dl", null, example.values.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, number(value, 6)))));
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
  // all classes would be too many for a page of cards: they come when somebody reaches for them
  const select = el("select", { "aria-label": `Right label of example ${index}`, onfocus: () => fillSelect(), onpointerdown: () => fillSelect(), onchange: () => {
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
    if (kind === "fix" && label === given) { select.focus(); return false; }
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
    el("p", { class: "source" }, sourceOf(example), example.issue ? null : " (not called wrong)"),
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

  // at each choice of a filter, not at each decision: nothing should vanish under the pointer
  function filter() {
    cards.forEach(({ element, example, decided }) => {
      const fits = (!pair.value || pairOf(example) === pair.value) && (!state.value || decided() === (state.value === "done"));
      element.parentElement.hidden = !fits;
    });
    none.hidden = shown().length > 0;
    reach(shown()[0]);
  }

  // one card at a time is a stop of the Tab key; arrows go on from there
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

  const counter = el("output", { class: "counter" });
  const save = el("button", { type: "button", class: "save", onclick: () => download("decisions.csv", decisionsCsv(store, classes)) }, "Download decisions.csv");
  const forget = el("button", { type: "button", onclick: () => {
    if (confirm(`Forget all ${store.size} decisions?`)) { store.clear(); cards.forEach(({ show }) => show()); }
  } }, "Forget all");
  const unsafe = el("p", { class: "note" }, "This browser keeps nothing for this page: download the decisions before you close it.");
  const none = el("p", { hidden: true }, "Nothing fits these filters.");
  function tell() {
    const parts = DECISIONS.map((kind) => `${store.count(kind)} ${kind}`);
    counter.textContent = `${number(store.size)} decided: ${parts.join(", ")}`;
    save.disabled = forget.disabled = store.size === 0;
    unsafe.hidden = store.safe;
  }
  store.watch(tell);
  tell();
  reach(cards[0]);

  const command = copyLine("Command");
  command.set(`reweigh correct ${suspects.folder || "RUN"} --decisions decisions.csv -o corrected`);

  return el("section", { "aria-labelledby": "review" },
    el("h2", { id: "review" }, "Look at them and decide"),
    el("p", null, `The ${number(cards.length)} most suspicious examples, the worst first: the label each has → the label it should perhaps have. `,
      "Keep leaves a label as it is, Fix gives it the one in the list below the buttons, Drop leaves the example out. ",
      "On a card the arrow keys move on, ", el("kbd", null, "K"), " keeps, ", el("kbd", null, "F"), " fixes, ", el("kbd", null, "D"), " drops and ", el("kbd", null, "U"), " takes it back."),
    unsafe,
    el("div", { class: "toolbar" },
      el("label", null, "Pair", pair), el("label", null, "Show", state), counter, save, forget),
    none, list,
    el("p", null, "Decisions stay in this browser until you forget them. To apply the file:"), command.element);
}
