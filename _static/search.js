// Search results: Sphinx looks for the stem of a word where a page has the word itself, and takes its summary from all
// of <main>, the buttons at its top included. Here it is the text about the first place found.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return; // not the page of results
  Search.makeSearchSummary = (html, stems) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    page.querySelectorAll(".headerlink, script, style").forEach((one) => one.remove());
    const text = page.querySelector("article.bd-article")?.textContent.replace(/\s+/g, " ").trim();
    if (!text) return null;
    // The stem of "patchify" is "patchifi".
    const places = [...stems].flatMap((stem) => [stem, stem.slice(0, -1)]).map((part) => text.toLowerCase().indexOf(part));
    const found = Math.max(0, (places.find((place) => place >= 0) ?? 0) - 100);
    const start = found && text.indexOf(" ", found) + 1;
    const end = text.lastIndexOf(" ", start + 240);
    const summary = document.createElement("p");
    summary.className = "context";
    summary.textContent = `${start ? "… " : ""}${text.slice(start, end)} …`;
    return summary;
  };
});
