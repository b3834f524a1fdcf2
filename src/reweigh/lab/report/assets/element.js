// Building blocks of the page; text always goes in as text, never as markup.
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

// a number for people: four significant digits, but whole numbers, which count something, exactly
const number = (value, digits = 4) =>
  (value !== 0 && Number.isSafeInteger(value) ? value.toLocaleString("en").replace("-", "−") : rounded(value, digits));

// the same where room is short: large ones as powers of ten
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

// a table that scrolls sideways by itself where there is no room
function scrolling(table, label) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

function plainTable(head, rows, label) {
  const body = rows.map(([first, ...rest]) =>
    el("tr", null, el("th", { scope: "row" }, first), rest.map((cell) => el("td", null, cell))));
  const columns = head.map((name) => el("th", { scope: "col" }, name));
  return scrolling(el("table", null, el("thead", null, el("tr", null, columns)), el("tbody", null, body)), label);
}
