// The page of results, in place of Sphinx's search: sections, terms and questions (SECTIONS, of _ext/site_search.py), ranked
// by where a word stands and how rare it is, while one types. The reference of the code is left out until asked for.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("search-results");
  if (!place || typeof SECTIONS === "undefined") return;
  // What people type, and what the book says; a word may stand for several.
  const SYNONYMS = {
    cls: ["class token"],
    "positional encoding": ["position"],
    "positional embedding": ["position"],
    "position embedding": ["position"],
    "pos embed": ["position"],
    ffn: ["mlp"],
    "feed forward": ["mlp"],
    "skip connection": ["residual"],
    mha: ["multi head attention"],
    "multihead": ["multi head"],
    axis: ["axis", "over the keys"],
    dim: ["axis"],
    lr: ["learning rate"],
    resume: ["resume", "interrupted"],
    checkpoint: ["checkpoint", "weights"],
    "grad cam": ["gradient"],
    saliency: ["attention map", "gradient"],
    quantization: ["eight bits", "int8"],
    simclr: ["contrastive"],
    clip: ["clip", "contrastive"],
    transfer: ["fine tuning", "transfer"],
    finetune: ["fine tuning"],
    finetuning: ["fine tuning"],
    speed: ["speed", "fast", "slow"],
    flash: ["fused kernel", "flash"],
    colab: ["colab", "running"],
    install: ["install", "running"],
    error: ["mistake", "error"],
    debug: ["broken", "mistake"],
  };
  const MOST = 30; // results
  const ROOM = 240; // letters of an excerpt
  const SILENT = new Set("a an and are at by can do does for from how i in is it me my of on or the to what when where which who why with".split(" "));
  const stem = (word) => word.replace(/(?:ies|y)$/, "i").replace(/(?<=\w{3})(?:ings?|ed|es|s|e)$/, "").replace(/(\w)\1$/, "$1");
  const split = (text) => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  const stems = (text) => ` ${split(text).map(stem).join(" ")} `;

  const entries = SECTIONS.map(([page, anchor, title, within, kind, text, ...see]) => {
    const words = stems(text);
    const [heading, parent] = [title, within].map((one) => stems(one.replace(/^\d+\. /, "")));
    const address = `${page}.html${anchor && `#${anchor}`}`;
    return { address, anchor, title, within, kind, text, see, heading, parent, words, length: words.length };
  });
  const count = (text, part) => text.split(part).length - 1;
  const rarity = new Map();
  const rare = (part) => {
    if (!rarity.has(part)) {
      const having = entries.filter((one) => one.kind !== "code" && (one.words.includes(part) || one.heading.includes(part))).length;
      rarity.set(part, Math.log(1 + entries.length / (1 + having)));
    }
    return rarity.get(part);
  };

  // What is asked: for each word or phrase the stems that would do, the asker's own first.
  function concepts(query) {
    let words = split(query);
    const asked = [];
    for (let at = 0; at < words.length; ) {
      const two = words.slice(at, at + 2).join(" ");
      const known = SYNONYMS[two] ? two : words[at];
      if (SYNONYMS[known] || !SILENT.has(known)) asked.push([known, ...(SYNONYMS[known] ?? [])].map(stems));
      at += known === two && two.includes(" ") ? 2 : 1;
    }
    words = [...new Set(asked.map((parts) => parts.join("|")))];
    return words.map((parts) => parts.split("|"));
  }

  const named = (term, asked, phrase) => term.heading === phrase || asked.some((parts) => parts.includes(term.heading));

  function score(one, asked, phrase) {
    let sum = 0;
    let missing = 0;
    for (const parts of asked) {
      const best = parts.map((part, nth) => {
        const weight = rare(part) * (nth ? 0.8 : 1);
        const at = one.heading.indexOf(part);
        const title = at < 0 ? 0 : 4 + (4 * part.length) / one.heading.length + 4 / (1 + count(one.heading.slice(0, at), " "));
        const parent = one.parent.includes(part) ? 2 : 0;
        const often = count(one.words, part);
        return weight * (title + parent + (3 * often) / (often + 0.5 + one.length / 1500));
      });
      const most = Math.max(...best);
      sum += most;
      missing += most === 0;
    }
    if (asked.length > 1 && one.heading.includes(phrase)) sum *= 1.5;
    else if (asked.length > 1 && one.words.includes(phrase)) sum *= 1.15;
    if (one.kind === "term") sum *= named(one, asked, phrase) ? 2 : 0.7;
    if (one.kind === "text" && !one.anchor) sum *= 1.6; // a whole page
    if (one.heading.startsWith(" exerci")) sum *= 0.6;
    return sum * 0.25 ** missing;
  }

  function find(query, code) {
    const asked = concepts(query);
    const phrase = ` ${split(query).filter((word) => !SILENT.has(word)).map(stem).join(" ")} `;
    // Where the glossary sends its reader, the answer is.
    const sent = new Set(entries.filter((one) => one.kind === "term" && named(one, asked, phrase)).flatMap((one) => one.see));
    return entries
      .filter((one) => code || one.kind !== "code")
      .map((one) => [score(one, asked, phrase) * (sent.has(one.address) ? 1.8 : 1), one])
      .filter(([sum]) => sum > 0)
      .sort(([a], [b]) => b - a)
      .map(([, one]) => one);
  }

  // Where a text has what is asked, a word or a phrase: for each place its beginning, its end, and the nth of `asked`.
  function places(text, asked) {
    const words = [...text.matchAll(/[\p{L}\p{N}_]+/gu)];
    const heard = words.map(([word]) => stem(word.toLowerCase()));
    const found = [];
    for (let at = 0; at < words.length; at++) {
      asked.forEach((parts, nth) => {
        for (const part of parts.map((one) => one.trim().split(" "))) {
          if (!part.every((word, i) => heard[at + i] === word)) continue;
          const last = words[at + part.length - 1];
          found.push([words[at].index, last.index + last[0].length, nth]);
        }
      });
    }
    return found;
  }

  // The sentence with the most of what is asked, or the first of what is an answer as a whole, and those after it.
  function excerpt({ text, kind }, asked) {
    const sentences = text.split(/(?<=[.?!]) (?=[\p{Lu}…“"])/u);
    const having = sentences.map((sentence) => new Set(places(sentence, asked).map(([, , nth]) => nth)).size);
    const first = kind === "text" ? having.indexOf(Math.max(...having)) : 0;
    let shown = sentences[first];
    let next = first + 1;
    while (next < sentences.length && shown.length + sentences[next].length < ROOM) shown += ` ${sentences[next++]}`;
    if (shown.length <= 1.5 * ROOM) return shown;
    const at = Math.max(0, (places(shown, asked)[0]?.[0] ?? 0) - ROOM / 3);
    const from = at && shown.indexOf(" ", at) + 1;
    return `${from ? "… " : ""}${shown.slice(from, shown.lastIndexOf(" ", from + ROOM))} …`;
  }

  // An element with a text, what is asked marked in it.
  function marked(tag, className, text, asked) {
    const element = document.createElement(tag);
    element.className = className;
    let done = 0;
    for (const [start, end] of places(text, asked)) {
      if (start < done) continue;
      const last = element.lastElementChild;
      if (last && text.slice(done, start) === " ") {
        last.textContent += text.slice(done, end); // words side by side are one mark
      } else {
        const mark = document.createElement("mark");
        mark.textContent = text.slice(start, end);
        element.append(text.slice(done, start), mark);
      }
      done = end;
    }
    element.append(text.slice(done));
    return element;
  }

  function row(one, asked) {
    const [, number, page] = (one.within || one.title).match(/^(?:(\d+)\. )?(.*)/s);
    const where = document.createElement("span");
    where.className = "search-where";
    where.textContent = [number ? `Chapter ${number}` : one.kind === "code" && "Code", one.within && page].filter(Boolean).join(" · ");
    const link = document.createElement("a");
    link.href = one.address;
    link.textContent = one.within ? one.title : page;
    const item = document.createElement("li");
    item.append(where, link, marked("p", "context", excerpt(one, asked), asked));
    return item;
  }

  const field = document.querySelector(".bd-search-container form.bd-search input");
  const code = document.createElement("input");
  code.type = "checkbox";
  const filter = document.createElement("label");
  filter.className = "search-filter";
  filter.append(code, " Include functions and classes");
  const summary = document.createElement("p");
  summary.className = "search-summary";
  summary.setAttribute("role", "status");
  const list = document.createElement("ol");
  list.className = "search";
  const bar = document.createElement("div");
  bar.className = "search-bar";
  bar.append(summary, filter);
  place.before(bar);
  place.replaceChildren(list);

  function show(query) {
    const asked = concepts(query);
    const found = asked.length ? find(query, code.checked) : [];
    summary.textContent = !query.trim() ? "" : found.length ? found.length > MOST ? `The best ${MOST} of ${found.length} places` : found.length > 1 ? `${found.length} places` : "One place" : "Nothing found: try another word.";
    list.replaceChildren(...found.slice(0, MOST).map((one) => row(one, asked)));
  }
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  show(field.value);
  field.addEventListener("input", () => {
    history.replaceState(null, "", `?q=${encodeURIComponent(field.value)}`);
    show(field.value);
  });
  field.form.addEventListener("submit", (event) => event.preventDefault());
  code.addEventListener("change", () => show(field.value));
});
