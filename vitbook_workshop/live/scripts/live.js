"use strict";

/* Starts a live figure when a reader wants it. Until then a page has its still image, and has loaded nothing else.

   What a figure needs comes as scripts that hand over their part: of the page itself, or from beside this one. */

var vitbookLive = (() => {
  const parts = new Map(); // name → what was handed over
  const waiting = new Map(); // name → the promise of it
  const own = /** @type {HTMLScriptElement | null} */ (document.currentScript);
  const beside = own?.src.replace(/[^/]*$/, "");
  // A function that makes four equal numbers and adds their bits: every browser since 2023 accepts it.
  const program = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];
  const simd = typeof WebAssembly === "object" && WebAssembly.validate(new Uint8Array(program));

  // Of the lower figures the height in rem: beside each other, and one below the other with how many squares as wide.
  const ROOMS = {
    query: [28, 29, 1],
    scale: [27.5, 34, 0],
    patches: [32.5, 30, 1],
    places: [25.5, 22, 1],
    shares: [26, 46, 0],
    paint: [36, 45, 0],
  };

  /** Called by the script of a part. */
  function deliver(name, content) {
    parts.set(name, content);
    document.dispatchEvent(new CustomEvent(`vitbook-${name}`));
  }

  /** A part, loaded where it is not there yet. Scripts, not fetch: pages in a folder may fetch nothing. */
  function need(name) {
    if (!waiting.has(name)) {
      waiting.set(name, parts.has(name) ? Promise.resolve(parts.get(name)) : load(name));
    }
    return waiting.get(name);
  }

  function load(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${beside}${name}.js`;
      script.onload = () =>
        parts.has(name) ? resolve(parts.get(name)) : reject(new Error(`this browser cannot read ${name}.js`));
      script.onerror = () => {
        waiting.delete(name);
        reject(new Error(`${name}.js could not be loaded`));
      };
      document.head.append(script);
    });
  }

  /** A thread of the figure's own. Returns a function: a question → the promise of its answer. */
  function thread(source) {
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    const open = new Map();
    let count = 0;
    worker.onmessage = ({ data: { id, result, error, news } }) => {
      const { resolve, reject, listen } = open.get(id);
      if (news !== undefined) {
        listen(news);
        return;
      }
      open.delete(id);
      error === undefined ? resolve(result) : reject(new Error(error));
    };
    worker.onerror = (event) => {
      for (const { reject } of open.values()) {
        reject(new Error(event.message || "the thread could not be started"));
      }
    };
    return (kind, question = {}, listen = () => {}) =>
      new Promise((resolve, reject) => {
        open.set(++count, { resolve, reject, listen });
        worker.postMessage({ ...question, kind, id: count });
      });
  }

  /** The figure in place of the still. */
  async function start(host) {
    const button = host.querySelector(".live-start");
    if (host.dataset.started) {
      return;
    }
    host.dataset.started = "yes";
    button.textContent = "One moment …";
    // Room for it, at once: when the figure is there, nothing that is read moves.
    host.style.minHeight = `${Math.min(innerHeight - host.getBoundingClientRect().top, roomOf(host))}px`;
    try {
      const { made, css, source, given } = await all(host);
      const shown = host.shadowRoot ?? host.attachShadow({ mode: "open" });
      const place = Object.assign(document.createElement("div"), { hidden: true });
      shown.replaceChildren(document.createElement("slot"), place); // the still, until the figure is there
      const root = place.attachShadow({ mode: "open" });
      root.innerHTML = `<style>${css}</style>${made.html}`;
      await made.start(root, source.length && thread(source.join("\n")), ...given);
      shown.replaceChildren(place);
      place.hidden = false;
      host.style.minHeight = "";
      const first = /** @type {HTMLElement | null} */ (root.querySelector("[data-first]"));
      first?.focus({ preventScroll: true });
    } catch (error) {
      host.style.minHeight = "";
      delete host.dataset.started;
      button.textContent = `It could not be started: ${error.message}. Try again`;
    }
  }

  /** How high a figure will be, in pixels: more than any screen where it is not known. */
  function roomOf(host) {
    const [wide, narrow, square] = ROOMS[host.dataset.figure] ?? [Infinity, Infinity, 0];
    const letter = parseFloat(getComputedStyle(document.documentElement).fontSize);
    return host.offsetWidth < 38 * letter ? narrow * letter + square * host.offsetWidth : wide * letter;
  }

  /** All that a figure needs: its own script, the style of all figures, its thread's sources if it has one, and data. */
  async function all(host) {
    const { figure, model } = host.dataset;
    const made = await need(figure);
    const together = (names) => Promise.all(names.map((name) => need(name.replace("{model}", model))));
    const [[css], source, given] = await Promise.all([["style"], made.thread, made.needs].map(together));
    return { made, css, source, given };
  }

  /** The button that starts a figure, or why there is none: what has a thread computes with WebAssembly's SIMD. */
  async function offer(host) {
    const button = /** @type {HTMLButtonElement} */ (host.querySelector(".live-start"));
    host.querySelector(".elsewhere")?.remove(); // it is here
    if (!simd && (await need(host.dataset.figure)).thread.length) {
      button.replaceWith("This browser lacks what the figure computes with: WebAssembly and its SIMD.");
      return;
    }
    button.disabled = false;
    button.style.visibility = "visible";
    button.addEventListener("click", () => start(host));
    host.querySelector("img")?.addEventListener("click", () => start(host));
    const parts = /** @type {HTMLElement[]} */ ([...host.querySelectorAll("[data-part]")]);
    if (parts.length) {
      offerParts(host, parts);
    } else {
      const prepare = () => all(host).catch(() => {}); // what a reader who comes near will need
      host.addEventListener("pointerenter", prepare, { once: true });
      button.addEventListener("focus", prepare, { once: true });
    }
    if (location.hash.startsWith(`#${host.dataset.figure}:`)) {
      start(host).then(() => host.scrollIntoView());
    }
  }

  /** The parts of a drawing as buttons, one of them in the order of Tab. Nothing is loaded before one is pressed. */
  function offerParts(host, parts) {
    for (const [i, part] of parts.entries()) {
      part.hidden = false;
      part.tabIndex = i ? -1 : 0;
      part.addEventListener("click", () => {
        host.dataset.part = part.dataset.part;
        start(host);
      });
      part.addEventListener("focus", () => parts.forEach((other) => (other.tabIndex = other === part ? 0 : -1)));
      part.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (step) {
          event.preventDefault();
          parts[(i + step + parts.length) % parts.length].focus();
        }
      });
    }
  }

  function begin() {
    const hosts = document.querySelectorAll(".vitbook-live:not([data-ready])");
    for (const host of /** @type {NodeListOf<HTMLElement>} */ (hosts)) {
      host.dataset.ready = "yes";
      offer(host);
    }
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", begin);
  } else {
    setTimeout(begin);
  }
  return { deliver, need, start };
})();
