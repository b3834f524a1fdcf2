// Puts the page together, and keeps the reader's choice of light or dark for as long as it is open.
const content = JSON.parse(document.getElementById("data").textContent);

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
