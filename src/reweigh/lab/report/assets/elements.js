// The data of the page, and its building blocks. Text is always inserted as text, never as markup.
const content = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in { value: 1, checked: 1, htmlFor: 1 }) node[name] = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

let lastId = 0;
const newId = (word) => `${word}-${(lastId += 1)}`;

// a number with four significant digits; integers, which are counts, are exact
const number = (value, digits = 4) =>
  (value !== 0 && Number.isSafeInteger(value) ? value.toLocaleString("en").replace("-", "−") : rounded(value, digits));

// the same in little space: large numbers as powers of ten
function rounded(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 2).replace("-", "−").replace("e+", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 8 }).replace("-", "−");
}

const percent = (value, digits = 1) =>
  (value === null || value === undefined || Number.isNaN(value) ? "–" : `${(100 * value).toFixed(digits)} %`);

// a table that scrolls sideways if it is too wide
function scrolling(table, label) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

function plainTable(head, rows, label) {
  const body = rows.map(([first, ...rest]) =>
    el("tr", null, el("th", { scope: "row" }, first), rest.map((cell) => el("td", null, cell))));
  const columns = head.map((name) => el("th", { scope: "col" }, name));
  return scrolling(el("table", null, el("thead", null, el("tr", null, columns)), el("tbody", null, body)), label);
}

// a table that is sorted by a click, or Enter, on a column's head; columns: [{name, value(row) to sort by, cell(row) to show}]
function sortableTable(columns, rows, { label, initial, descending }) {
  const body = el("tbody");
  const heads = columns.map((column, i) =>
    el("th", { scope: "col", "aria-sort": "none", class: column.left ? "left" : null }, column.plain
      ? el("span", { class: "plain" }, column.name)
      : el("button", { type: "button", onclick: () => sort(i) }, column.name)));
  const lines = rows.map((row) => ({ row, line: el("tr", null, columns.map((column, i) => el(i === 1 ? "th" : "td", { scope: i === 1 ? "row" : null, class: column.left ? "left" : null }, column.cell(row)))) }));

  function compare(a, b) {
    const [missingA, missingB] = [a === null || a === undefined, b === null || b === undefined];
    if (missingA || missingB) return missingA === missingB ? 0 : missingA ? 1 : -1;
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(i, direction) {
    const now = heads[i].getAttribute("aria-sort");
    const next = direction || (now === "ascending" ? "descending" : "ascending");
    heads.forEach((head, k) => head.setAttribute("aria-sort", k === i ? next : "none"));
    const sign = next === "ascending" ? 1 : -1;
    const value = columns[i].value;
    const missing = (x) => value(x.row) === null || value(x.row) === undefined;
    // missing values stay at the end in both directions
    lines.sort((a, b) => (missing(a) || missing(b) ? 1 : sign) * compare(value(a.row), value(b.row)));
    body.replaceChildren(...lines.map(({ line }) => line));
  }

  sort(initial, descending ? "descending" : "ascending");
  const table = el("table", { class: "sortable" }, el("thead", null, el("tr", null, heads)), body);
  return {
    element: scrolling(table, label),
    filter: (keep) => lines.forEach(({ row, line }) => { line.hidden = !keep(row); }),
  };
}

// a line to copy, which breaks between words
function copyLine(label) {
  const code = el("code");
  const button = el("button", { type: "button", "aria-label": `Copy: ${label}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  const set = (text) => code.replaceChildren(...text.split(" ").flatMap((word, i) => [i ? " " : "", el("span", null, word)]));
  return { element: el("div", { class: "copy" }, el("span", null, label), code, button), set };
}

// light or dark: that of the system, until the reader chooses
const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
let choice = null;
function paint() {
  const now = choice || (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now;
  theme.textContent = now === "dark" ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Switch to ${now === "dark" ? "light" : "dark"} colours`);
}
theme.addEventListener("click", () => { choice = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; paint(); });
dark.addEventListener("change", paint);
paint();
