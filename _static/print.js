// On paper, solutions and asides are unfolded, cells that set up or draw are not, and the page is light. Lines of code
// are blocks, so that they wrap behind their own indent and break where code may. Addresses stand at the end.
(() => {
  const WHOLE = 12; // lines of code, or of output, that are not divided
  const page = document.documentElement;
  const lines = new WeakMap(); // how many a listing has
  let undo = [];

  const change = (now, later) => {
    now();
    undo.push(later);
  };
  const mark = (element, name) => change(() => element.classList.add(name), () => element.classList.remove(name));

  // A copy of a listing takes its place: each line a block, with what is blank below it.
  const set = (listing) => {
    const copy = listing.cloneNode();
    const blocks = [];
    for (const text of listing.innerHTML.trimEnd().split("\n")) {
      const line = document.createElement("span");
      line.innerHTML = text;
      const indent = line.textContent.search(/\S/);
      if (indent < 0) {
        blocks.at(-1)?.classList.add("gap");
        continue;
      }
      line.className = "line";
      line.style.setProperty("--indent", indent);
      blocks.push(line);
    }
    // At least four lines on either side of a page's end, which divides no short statement.
    const starts = blocks.flatMap((line, i) => (/^[^\s)\]}]/.test(line.textContent) ? [i] : [])).concat(blocks.length);
    const long = (i) => starts.find((start) => start > i) - starts.findLast((start) => start <= i) > 8;
    blocks.forEach((line, i) => {
      const near = i < 3 || i > blocks.length - 5 || (!starts.includes(i + 1) && !long(i));
      line.classList.toggle("joined", near && i < blocks.length - 1);
    });
    copy.replaceChildren(...blocks);
    copy.classList.toggle("whole", blocks.length <= WHOLE);
    lines.set(copy, blocks.length);
    change(() => listing.replaceWith(copy), () => copy.replaceWith(listing));
  };

  const count = (listings) => [...listings].reduce((sum, listing) => sum + lines.get(listing), 0);

  // Code and a short output are one; so are a line of code and its figure.
  const join = (cell) => {
    const code = count(cell.querySelectorAll(":scope > .cell_input pre"));
    const output = cell.querySelector(".cell_output");
    if (!code || !output) return;
    const printed = count(output.querySelectorAll("pre"));
    if (!output.querySelector("img, svg, table, .vitbook-cards") && code + printed <= WHOLE) mark(cell, "whole");
    else if ((code <= 3 && output.querySelector("img, svg")) || (printed && printed <= 5))
      mark(cell.querySelector(".cell_input"), "joined");
  };

  // A paragraph that announces code, a list or a formula stands on the same page. Figures are too tall for that.
  const announce = (paragraph) => {
    let next = paragraph.nextElementSibling;
    while (next?.matches(".cell:has(> .hide:only-child)")) next = next.nextElementSibling;
    const text = paragraph.textContent.trim();
    const follows = "section, .question, .cell, [class*=highlight-], ul, ol, .pst-scrollable-table-container";
    if (!next || next.matches(".has-figure, :has(> .cell_output .vitbook-cards)")) return;
    const leads = next.matches(follows) && (/[:,]$/.test(text) || text.length < 100);
    if (leads || next.matches(".math")) mark(paragraph, "joined");
  };

  // Addresses of other sites, numbered in the text, in a list at the end.
  const note = (article) => {
    const numbers = new Map();
    for (const link of article.querySelectorAll(":is(p, li) a.external[href^=http]:not(.citation *)")) {
      if (!numbers.has(link.href)) numbers.set(link.href, numbers.size + 1);
      const number = document.createElement("sup");
      number.className = "address";
      number.textContent = numbers.get(link.href);
      change(() => link.after(number), () => number.remove());
    }
    if (!numbers.size) return;
    const list = document.createElement("section");
    list.className = "addresses";
    list.innerHTML = "<h4>Addresses</h4><ol></ol>";
    for (const address of numbers.keys()) {
      const item = document.createElement("li");
      item.textContent = decodeURI(address).replace(/^https?:\/\//, "");
      list.lastChild.append(item);
    }
    const last = article.querySelector("p.executed-with");
    change(() => (last ? last.before(list) : article.append(list)), () => list.remove());
  };

  addEventListener("beforeprint", () => {
    const { theme } = page.dataset;
    change(() => (page.dataset.theme = "light"), () => (page.dataset.theme = theme));
    const [, title, book] = document.title.match(/(.*) [—-] (.*)/);
    page.style.setProperty("--page-title", JSON.stringify(title === book ? "" : title)); // the running head
    for (const details of document.querySelectorAll("details:not([open], .hide, .question *)"))
      change(() => (details.open = true), () => (details.open = false));
    const article = document.querySelector(".bd-article");
    article.querySelectorAll(":is(.highlight, .cell_output) pre").forEach(set);
    article.querySelectorAll(".cell").forEach(join);
    article.querySelectorAll(":is(section, details, .admonition) > p").forEach(announce);
    for (const box of article.querySelectorAll("details:not(.hide, .question *), .admonition:not(.hide)"))
      if (box.textContent.length < 400 && !box.querySelector("img, table, div.math")) mark(box, "whole");
    note(article);
    const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      const { data } = text;
      if (/\d %/.test(data) && !text.parentElement.closest("pre, code"))
        change(() => (text.data = data.replace(/(?<=\d) (?=%)/g, "\u00a0")), () => (text.data = data));
    }
  });

  addEventListener("afterprint", () => {
    undo.reverse().forEach((step) => step());
    undo = [];
  });
})();
