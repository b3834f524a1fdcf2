// Puts the page together.
const main = document.getElementById("main");
const afterwards = [];
if (content.report) {
  const place = el("div", { id: "report" });
  main.append(place);
  afterwards.push(buildReport(content.report, place));
}
const place = el("section", { id: "explorer", "aria-labelledby": "explore" });
if (content.report) place.append(el("h2", { id: "explore" }, "Explorer"));
else place.setAttribute("aria-label", "Explorer");
main.append(place);
const explorer = buildExplorer(content.explore, place, content.report ? 2 : 1);
afterwards.push(explorer.update);
afterwards.forEach((task) => task());
document.getElementById("version").textContent = content.version;

// for the console, and for checking the page against the library
window.reweigh = { weightingOf, weight, integral, variance, share, mode, potentialOf, potentialRange, batch, margin, explorer };
