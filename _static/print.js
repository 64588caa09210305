// On paper, solutions and asides are unfolded, cells that set up or draw are not, and the page is light.
(() => {
  const page = document.documentElement;
  let folded = [];
  let theme = page.dataset.theme;
  addEventListener("beforeprint", () => {
    theme = page.dataset.theme;
    page.dataset.theme = "light";
    const [, title, book] = document.title.match(/(.*) [—-] (.*)/);
    page.style.setProperty("--page-title", JSON.stringify(title === book ? "" : title)); // the running head
    folded = [...document.querySelectorAll("details:not([open], .hide, .question *)")];
    folded.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => {
    page.dataset.theme = theme;
    folded.forEach((details) => (details.open = false));
  });
})();
