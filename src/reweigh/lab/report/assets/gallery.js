// Abnormal examples, a row for each class: its smallest p, those called wrong in a red box, beside its largest.
function gallerySection(suspects) {
  const { classes, shown } = suspects;
  const item = (k) => {
    const example = shown[k];
    const words = example.issue && example.suggested !== example.given ? ` → ${classes[example.suggested]}` : "";
    return el("li", { class: example.issue ? "issue" : null }, picture(example, classes),
      el("span", null, `p ${number(example.p_given, 2)}${words}`));
  };
  const rows = suspects.gallery.map((row) => el("div", { class: "row" },
    el("h3", null, classes[row.label], " ", el("small", null, `${number(row.issues)} of ${number(row.of)} called wrong`)),
    el("div", { class: "strips", tabindex: 0, role: "region", "aria-label": `Examples labelled ${classes[row.label]}` },
      el("ul", { class: "strip", role: "list" }, row.low.map(item)),
      row.high.length ? el("ul", { class: "strip normal", role: "list", "aria-label": "Those with the largest p" }, row.high.map(item)) : null)));
  return el("section", { "aria-labelledby": "gallery" },
    el("h2", { id: "gallery" }, "Abnormal examples"),
    el("p", null, "Each row holds the examples of one given label that the model believes least, by p from the left, and at its end a few that it believes most. A red box means that the label is called wrong; an example may also show something else altogether, or nothing at all."),
    rows);
}
