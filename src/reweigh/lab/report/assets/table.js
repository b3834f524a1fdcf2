// A table that sorts by a click, or by Enter, on a column's head.
// columns: [{name, value(row) to sort by, cell(row) to show}]
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
    // what is missing stays at the end, whichever way the rest goes
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
