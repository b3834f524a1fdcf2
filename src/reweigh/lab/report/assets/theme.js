// The data of the page, and the reader's choice of light or dark, kept for as long as it is open.
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
