// A slider and a number field for one parameter, which follow each other.
const TAPERS = [0, ...[-9, -8, -7, -6, -5, -4, -3, -2, -1].flatMap((k) => [Number(`1e${k}`), Number(`5e${k}`)])];

function knobView({ name, low, high, step, start, least, most, stops, whole }, changed) {
  const id = newId("knob");
  const nearest = (value) => stops.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));
  const toSlider = (value) => (stops ? stops.indexOf(nearest(value)) : value);
  const slider = el("input", {
    type: "range",
    id,
    min: stops ? 0 : low,
    max: stops ? stops.length - 1 : high,
    step: stops ? 1 : step,
    value: toSlider(start),
    "aria-valuetext": String(start),
    oninput: () => set(stops ? stops[Number(slider.value)] : Number(slider.value), "slider"),
  });
  const field = el("input", {
    type: "number",
    step: "any",
    value: start,
    "aria-label": `${name}, exact value`,
    oninput: () => set(field.value === "" ? NaN : Number(field.value), "field"),
  });
  let [value, turned] = [start, false];

  function set(next, from) {
    const wrong = !Number.isFinite(next) || (least !== null && least !== undefined && next < least) || (most !== undefined && next > most) || (whole && !Number.isInteger(next));
    field.classList.toggle("wrong", wrong);
    field.setAttribute("aria-invalid", wrong);
    if (wrong) return;
    turned = true;
    show(next, from);
    changed();
  }

  function show(next, from) {
    value = next;
    if (from !== "slider") slider.value = toSlider(next);
    if (from !== "field") field.value = next;
    slider.setAttribute("aria-valuetext", String(next));
  }

  const element = el("div", { class: "knob", "data-name": name }, el("label", { htmlFor: id }, name), slider, field);
  // a start that may still change, until somebody turns the knob
  const startFrom = (next) => { if (!turned) show(next); };
  return { element, get value() { return value; }, name, startFrom };
}

// choose a weighting, and turn its knobs
function chooser(legend, catalogue, curveAt, initial, changed) {
  const id = newId("weighting");
  const select = el("select", { id, onchange: () => { knobs = make(); changed(); } },
    catalogue.map((entry) => el("option", { value: entry.name, selected: entry.name === initial.name }, entry.name)));
  const about = el("p", { class: "about" });
  const place = el("div");
  const entry = () => catalogue.find((each) => each.name === select.value);

  function make() {
    const values = select.value === initial.name ? initial.values : {};
    const made = entry().knobs.map((knob) => knobView({ ...knob, start: knob.name in values ? values[knob.name] : knob.start }, changed));
    about.textContent = entry().about;
    place.replaceChildren(...made.map((knob) => knob.element));
    return made;
  }

  let knobs = make();
  const element = el("fieldset", null, el("legend", null, legend), el("label", { htmlFor: id, class: "above" }, "Weighting"), select, about, place);

  // what the formulas take, and how Python writes it
  function state(classes) {
    const turned = Object.fromEntries(knobs.map((knob) => [knob.name, knob.value]));
    const kind = entry().kind;
    if (select.value === "Curve") {
      const points = curveAt.map((at, i) => [at, knobs[i].value]);
      const flat = points.every(([, w]) => w === 0);
      const text = `Curve(points=(${points.map(([p, w]) => `(${p}, ${w})`).join(", ")}))`;
      return { name: "Curve", values: { points }, text, kind, problem: flat ? "a curve must be above 0 somewhere" : null };
    }
    const values = select.value === "ForwardSymmetric" ? { ...turned, num_classes: classes } : turned;
    const text = `${select.value}(${Object.entries(values).map(([name, value]) => `${name}=${value}`).join(", ")})`;
    const limit = (classes - 1) / classes;
    const problem = select.value === "ForwardSymmetric" && turned.rate >= limit ? `rate must be below (C − 1)/C = ${number(limit)}` : null;
    const nothing = select.value === "SL" && turned.alpha === 0 && turned.b === 0 ? "alpha and b are both 0: nothing weighs anything" : null;
    return { name: select.value, values, text, kind, problem: problem || nothing };
  }
  return { element, state };
}
