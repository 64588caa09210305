// On paper, solutions and asides are unfolded, cells that set up or draw are not, and the page is light.
(() => {
  const page = document.documentElement;
  let folded = [];
  let theme = page.dataset.theme;
  addEventListener("beforeprint", () => {
    theme = page.dataset.theme;
    page.dataset.theme = "light";
    folded = [...document.querySelectorAll("details:not([open], .hide)")];
    folded.forEach((details) => (details.open = true));
  });
  // Pictures below the fold wait until the rest is there, but not until somebody scrolls: paper has no scrolling.
  addEventListener("load", () => {
    document.querySelectorAll('img[loading="lazy"]').forEach((picture) => (picture.loading = "eager"));
  });
  addEventListener("afterprint", () => {
    page.dataset.theme = theme;
    folded.forEach((details) => (details.open = false));
  });
})();
