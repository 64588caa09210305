// A field above the table of symptoms that keeps the rows with all of its words. Without scripts the table is whole.
(() => {
  const table = document.querySelector("#from-symptom-to-suspect table");
  if (!table) return;
  const field = Object.assign(document.createElement("input"), { type: "search", placeholder: "What do you see?" });
  field.setAttribute("aria-label", "Filter the table by symptom");
  field.className = "form-control";
  const rows = [...table.tBodies[0].rows];
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    rows.forEach((row) => (row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word))));
  });
  (table.closest(".pst-scrollable-table-container") ?? table).before(field);
})();
