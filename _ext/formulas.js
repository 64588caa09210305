// MathJax, for site_equations.py: a line of JSON in, [TeX, whether it stands alone], and a line of HTML out.
const { createInterface } = require("node:readline");

const [mathjax] = process.argv.slice(2);
const load = ["input/tex", "output/svg", "a11y/assistive-mml"];
require(mathjax).init({ loader: { load }, svg: { fontCache: "none" } }).then(async (MathJax) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const [tex, display] = JSON.parse(line);
    const drawn = await MathJax.tex2svgPromise(tex, { display });
    console.log(MathJax.startup.adaptor.outerHTML(drawn).replaceAll("\n", " "));
  }
});
