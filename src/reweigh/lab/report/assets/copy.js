// A line to copy: its words break apart only where one alone is too long.
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
