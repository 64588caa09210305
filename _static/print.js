// On paper, solutions are unfolded and the page is light, whatever they are on the screen.
(() => {
  const page = document.documentElement;
  let folded = [];
  let theme = page.dataset.theme;
  addEventListener("beforeprint", () => {
    theme = page.dataset.theme;
    page.dataset.theme = "light";
    folded = [...document.querySelectorAll("details:not([open])")];
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
