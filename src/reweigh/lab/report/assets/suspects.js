// Puts the page of suspects together.
const { suspects } = content;
const store = decisionStore(suspects.key);
document.getElementById("main").append(
  el("p", null, `${number(suspects.issues)} of ${number(suspects.examples)} labels are called wrong. Scores: ${suspects.method}.`),
  reviewSection(suspects, store),
  ...(suspects.gallery.length ? [gallerySection(suspects)] : []),
  ...(suspects.noise ? [noiseSection(suspects)] : []));
document.getElementById("version").textContent = content.version;
