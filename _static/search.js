// Search results: a glossary term's definition, then pages and headings that have the words, then text. The reference of
// the code is left out until it is asked for. Sphinx finds the text and shows the results; the order is made here.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return; // not the page of results
  const SYNONYMS = {
    cls: "class token",
    "positional encoding": "positions",
    "positional embedding": "positions",
    "position embedding": "positions",
    "feed-forward": "mlp",
    ffn: "mlp",
    "skip connection": "residual",
    mha: "multi-head",
    colab: "running",
  };
  const words = (text) => splitQuery(text.toLowerCase());
  const shown = document.createElement("input");
  shown.type = "checkbox";
  const filter = document.createElement("label");
  filter.className = "search-filter";
  filter.append(shown, " also the reference of the code");
  document.getElementById("search-results").before(filter);
  shown.addEventListener("change", () => {
    document.getElementById("search-results").replaceChildren();
    Search.performSearch(new URLSearchParams(location.search).get("q") ?? "");
  });

  // Results are [page, title, anchor, description, score, file], the best last.
  Search._performSearch = (query, stems, excluded, _highlighted, objects) => {
    const { titles, alltitles, docnames, filenames, indexentries } = Search._index;
    document.getElementById("search-progress")?.replaceChildren();
    const asked = query.toLowerCase().trim();
    const meant = SYNONYMS[asked] ?? asked;
    const wanted = words(meant);
    const stemmer = new Stemmer();
    const searched = meant === asked ? stems : new Set(wanted.map((word) => stemmer.stemWord(word)));
    const found = new Map(); // page and anchor → result
    const add = (file, title, anchor, description, score) => {
      const key = docnames[file] + anchor;
      if (!(found.get(key)?.[4] >= score)) {
        found.set(key, [docnames[file], title, anchor, description, score, filenames[file]]);
      }
    };
    const fits = (title) => wanted.length > 0 && wanted.every((word) => words(title).some((one) => one.startsWith(word)));
    const early = (title) => 1 / (1 + words(title).findIndex((one) => one.startsWith(wanted[0])));

    for (const [title, places] of Object.entries(alltitles).filter(([title]) => fits(title))) {
      for (const [file, id] of places) {
        const whole = titles[file] === title;
        add(file, whole ? title : `${title} · ${titles[file]}`, whole || id === null ? "" : `#${id}`, null, (whole ? 60 : 40) + 9 * early(title));
      }
    }
    const terms = Object.entries(indexentries).filter(([, places]) => places.some(([file]) => docnames[file] === "glossary"));
    const exact = terms.filter(([term]) => [asked, meant].includes(term.toLowerCase()));
    for (const [term, places] of exact.length ? exact : terms.filter(([term]) => fits(term))) {
      places.forEach(([file, id]) => add(file, `${term} · ${titles[file]}`, `#${id}`, null, exact.length ? 100 : 30));
    }
    for (const [page, title, anchor, , score] of Search.performTermsSearch(searched, excluded)) {
      add(docnames.indexOf(page), title, anchor, null, score);
    }
    for (const [page, title, anchor, description] of [...objects].flatMap((one) => Search.performObjectSearch(one, objects))) {
      add(docnames.indexOf(page), title, anchor, description, 20);
    }
    return [...found.values()]
      .filter(([page, , , description]) => shown.checked || !(description || page.startsWith("api")))
      .sort((a, b) => a[4] - b[4] || b[1].localeCompare(a[1]));
  };

  // The text about the first place found, without the buttons at the top of the page; of a term, its definition.
  Search.makeSearchSummary = (html, stems, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    page.querySelectorAll("h1, h2, h3, .headerlink, .cell_input, script, style").forEach((one) => one.remove());
    const term = anchor?.startsWith("#term-") && page.getElementById(anchor.slice(1))?.closest("dt")?.nextElementSibling;
    const section = anchor && page.getElementById(anchor.slice(1));
    const text = (term || section || page.querySelector("article.bd-article"))?.textContent.replace(/\s+/g, " ").trim();
    if (!text) return null;
    // The stem of "patchify" is "patchifi".
    const places = [...stems].flatMap((stem) => [stem, stem.slice(0, -1)]).map((part) => text.toLowerCase().indexOf(part));
    const found = term ? 0 : Math.max(0, (places.find((place) => place >= 0) ?? 0) - 100);
    const start = found && text.indexOf(" ", found) + 1;
    const end = text.length > start + 240 ? text.lastIndexOf(" ", start + 240) : text.length;
    const summary = document.createElement("p");
    summary.className = "context";
    summary.textContent = `${start ? "… " : ""}${text.slice(start, end)}${end < text.length ? " …" : ""}`;
    return summary;
  };
});
