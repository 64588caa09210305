"""Every page as a reader's browser shows it, in light, in dark and on a phone."""

from visits import Site, barriers

FORMULAS = r"""
() => {
  const said = document.querySelector('script[src*="mathjax" i]') ? ['formulas are drawn late, and move the text'] : [];
  const bare = [...document.querySelectorAll('.math')].filter((one) => !one.querySelector('mjx-container'));
  bare.forEach((one) => said.push(`not set: ${one.textContent}`));
  document.querySelectorAll('mjx-merror, [data-mjx-error]').forEach((one) => said.push(`error: ${one.textContent}`));
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const formula = /\$\$|\$[^$\s][^$]*\$|\\[([]|\\(begin|tag|frac|sqrt)\{/.test(text.data);
    if (formula && !text.parentElement.closest('pre, code, script, style, .math')) said.push(`source: ${text.data}`);
  }
  return said;
}
"""

# The page's own width, and everything that sticks out of it and cannot be scrolled to within a frame of its own
WIDE = """
() => {
  const { clientWidth: room, scrollWidth: whole } = document.documentElement;
  const said = whole > room ? [`scrolls to ${whole}`] : [];
  const framed = (one) => one && one !== document.body
    && (['auto', 'scroll'].includes(getComputedStyle(one).overflowX) || framed(one.parentElement));
  for (const one of document.querySelectorAll('main article *')) {
    if (!one.checkVisibility() || one.closest('mjx-assistive-mml') || framed(one.parentElement)) continue;
    const { left, right } = one.getBoundingClientRect();
    if (left < -1 || right > room + 1) said.push(`from ${left} to ${right}: ${one.outerHTML.slice(0, 80)}`);
  }
  return said;
}
"""


def test_a_page_is_whole_in_light_and_in_dark(site: Site, axe: str, built_page: str) -> None:
    with site.visit(built_page) as visit:
        problems = visit.page.evaluate(FORMULAS) + visit.page.evaluate(WIDE)
        for mode in ("light", "dark"):
            visit.page.emulate_media(color_scheme=mode)
            visit.page.wait_for_function("(mode) => document.documentElement.dataset.theme === mode", arg=mode)
            problems += [f"{mode}: {barrier}" for barrier in barriers(visit, axe)]
        problems += visit.complaints
    assert not problems, "\n".join(problems)


def test_a_page_is_whole_on_a_phone(site: Site, built_page: str) -> None:
    with site.visit(built_page, "phone") as visit:
        problems = visit.page.evaluate(FORMULAS) + visit.page.evaluate(WIDE) + visit.complaints
    assert not problems, "\n".join(problems)
