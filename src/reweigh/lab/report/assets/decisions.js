// What the reader decided: index -> {given, kind, label}, kept in the browser under the hash of the labels.
const DECISIONS = ["keep", "fix", "drop"];

function decisionStore(key) {
  const name = `reweigh suspects ${key}`;
  const listeners = [];
  let [made, safe] = [new Map(), true];
  try {
    made = new Map(JSON.parse(localStorage.getItem(name) || "[]"));
  } catch (error) {
    safe = error instanceof SyntaxError; // what is there is damaged; else there is no storage at all
  }

  function changed() {
    try {
      localStorage.setItem(name, JSON.stringify([...made]));
    } catch {
      safe = false;
    }
    listeners.forEach((listener) => listener());
  }

  return {
    get: (index) => made.get(index),
    set(index, decision) { made.set(index, decision); changed(); },
    remove(index) { made.delete(index); changed(); },
    clear() { made.clear(); changed(); },
    count: (kind) => [...made.values()].filter((decision) => decision.kind === kind).length,
    get size() { return made.size; },
    get safe() { return safe; },
    watch: (listener) => listeners.push(listener),
    entries: () => [...made].sort(([a], [b]) => a - b),
  };
}

// the file that `reweigh correct --decisions` reads
function decisionsCsv(store, classes) {
  const quoted = (word) => `"${word.replaceAll('"', '""')}"`;
  const lines = store.entries().map(([index, { given, kind, label }]) =>
    [index, quoted(classes[given]), quoted(kind), quoted(classes[kind === "fix" ? label : given])].join(","));
  return `${["index,given,decision,label", ...lines].join("\n")}\n`;
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
