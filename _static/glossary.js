// A glossary term's definition, shown while its link is pointed at or focused; Escape hides it. Without this script the
// browser shows the link's title instead.
document.addEventListener("DOMContentLoaded", () => {
  const box = document.createElement("div");
  box.id = "glossary-definition";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.body.append(box);
  let shown = null;
  let leaving = 0;

  const hide = () => {
    box.hidden = true;
    shown?.removeAttribute("aria-describedby");
    shown = null;
  };
  const leave = () => {
    leaving = window.setTimeout(hide, 200); // long enough to move onto the definition
  };
  const stay = () => window.clearTimeout(leaving);
  const show = (link) => {
    stay();
    hide();
    shown = link;
    box.textContent = link.dataset.definition;
    box.hidden = false;
    link.setAttribute("aria-describedby", box.id);
    const at = link.getClientRects()[0];
    const left = Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8);
    const below = at.bottom + box.offsetHeight + 8 < window.innerHeight;
    box.style.left = `${window.scrollX + Math.max(8, left)}px`;
    box.style.top = `${window.scrollY + (below ? at.bottom + 4 : at.top - box.offsetHeight - 4)}px`;
  };

  for (const link of document.querySelectorAll("a.glossary-term[title]")) {
    link.dataset.definition = link.title;
    link.removeAttribute("title");
    link.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show(link));
    link.addEventListener("pointerleave", leave);
    link.addEventListener("focus", () => link.matches(":focus-visible") && show(link));
    link.addEventListener("blur", hide);
  }
  box.addEventListener("pointerenter", stay);
  box.addEventListener("pointerleave", leave);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
});
