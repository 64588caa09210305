"""Everything that can be done with a mouse can be done with keys, and the text can be read without scripts."""

import pytest
from visits import Site, Visit

PAGE = "notation.html"
CHAPTER = "chapters/04_multihead.html"
EXPLORER = "chapters/13_attention_maps.html"
EXAM = "chapters/28_exam.html"
STARTED = "() => [...document.querySelectorAll('.vitbook-live')].every((one) => one.shadowRoot && !one.style.minHeight)"

# All that Tab should reach, and how each looks while it has no focus
CONTROLS = """
() => {
  const still = document.createElement('style');
  still.textContent = '* { transition: none !important; animation: none !important }';
  document.head.append(still);
  document.body.tabIndex = -1;
  document.body.focus(); // what has been pressed is forgotten: Tab begins at the top
  document.body.removeAttribute('tabindex');
  const within = (root) => [...root.querySelectorAll('*')].flatMap((one) =>
    one.shadowRoot ? [one, ...within(one.shadowRoot)] : [one]);
  const chosen = (one) => one.type !== 'radio' || one.checked
    || !one.getRootNode().querySelector(`input[name="${one.name}"]:checked`);
  // A control of no opacity lies on a picture, which stands for it.
  window.shown = (one) => getComputedStyle(one).opacity === '0' ? one.nextElementSibling ?? one.parentElement : one;
  window.look = (one) => {
    const { outline, boxShadow, borderColor, backgroundColor, textDecoration } = getComputedStyle(one);
    return [outline, boxShadow, borderColor, backgroundColor, textDecoration].join(' ');
  };
  window.controls = within(document.body).filter((one) =>
    one.matches('a[href], button, input, select, textarea, summary, [tabindex]') && one.tabIndex >= 0
    && !one.matches(':disabled') && one.checkVisibility({ visibilityProperty: true }) && chosen(one));
  window.looks = new Map(controls.map((one) => [one, look(shown(one))]));
  window.reached = new Set();
  return controls.length;
}
"""

# What has the focus now: "" where all is well with it, else what is wrong; null at the end of the page
FOCUS = """
() => {
  let one = document.activeElement;
  while (one.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
  if (one === document.body) return null;
  reached.add(one);
  let opacity = 1;
  for (let up = shown(one); up; up = up.parentElement ?? up.getRootNode().host) opacity *= getComputedStyle(up).opacity;
  const { width, height, bottom, top, right, left } = one.getBoundingClientRect();
  const away = bottom <= 0 || top >= innerHeight || right <= 0 || left >= innerWidth || !width || !height;
  const same = look(shown(one)) === looks.get(one);
  const wrong = [opacity < 0.5 && 'transparent', away && 'off the screen', same && 'unchanged'];
  return wrong.filter(Boolean).map((word) => `${word}: ${one.outerHTML.slice(0, 160)}`).join('; ');
}
"""


@pytest.mark.parametrize(("path", "mode"), [(PAGE, "phone"), (CHAPTER, "light"), (EXPLORER, "dark"), (EXAM, "phone")])
def test_tab_reaches_every_control_and_one_sees_where_it_is(site: Site, path: str, mode: str) -> None:
    with site.visit(path, mode) as visit:
        for button in visit.page.locator(".live-start").all():
            button.click()
        visit.page.wait_for_function(STARTED)
        count = visit.page.evaluate(CONTROLS)
        said = []
        for _ in range(count + 20):
            visit.page.keyboard.press("Tab")
            wrong = visit.page.evaluate(FOCUS)
            if wrong is None:
                break
            said.append(wrong)
        missed = visit.page.evaluate("controls.filter((x) => !reached.has(x)).map((x) => x.outerHTML.slice(0, 160))")
    assert count > 10
    assert [wrong for wrong in said if wrong] == []
    assert missed == []


def press(visit: Visit, selector: str, key: str = "Enter") -> None:
    visit.page.locator(selector).locator("visible=true").first.focus()
    visit.page.keyboard.press(key)


def test_the_switch_of_colours_goes_round_and_stays(site: Site) -> None:
    theme = "document.documentElement.dataset.theme"
    with site.visit(PAGE) as visit:
        seen = []
        for _ in range(3):
            press(visit, ".theme-switch-button")
            seen.append(visit.page.evaluate("document.documentElement.dataset.mode"))
            assert visit.page.locator(".bd-header-article .theme-switch").locator("visible=true").count() == 1
        assert sorted(seen) == ["auto", "dark", "light"]
        while visit.page.evaluate("document.documentElement.dataset.mode") != "dark":
            press(visit, ".theme-switch-button")
        visit.go(site.base + "references.html")
        assert visit.page.evaluate(theme) == "dark"


def test_search_by_keys_finds_a_section_and_goes_there_without_leaving_marks(site: Site) -> None:
    with site.visit(PAGE) as visit:
        visit.page.keyboard.press("Control+k")
        visit.page.locator("dialog input[type=search]").wait_for()
        visit.page.keyboard.type("patchify")
        visit.page.keyboard.press("Enter")
        result = visit.page.locator("#search-results li:has(a[href*='06_patches'])").first
        found, summary = result.locator("a").first, result.locator("p.context")
        assert "patchify" in result.inner_text().lower() and "Colab" not in summary.inner_text()
        found.focus()
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**/06_patches.html*")
        assert visit.page.locator(".highlighted").count() == 0
        assert visit.complaints == []


# Questions as readers type them, and the section that answers.
WANTED = {
    "attention": "chapters/01_attention.html",
    "patch size": "chapters/06_patches.html#what-the-patch-size-trades-off",
    "cls token": "chapters/07_embedding.html",
    "softmax axis": "questions.html#which-axis-does-the-softmax-run-over",
    "register": "chapters/21_modern.html#tokens-for-nothing",
    "how do I resume": "chapters/11_engine.html#interrupted-and-resumed",
    "learning rate": "chapters/10_training.html#how-fast-to-learn-and-when",
    "mask": "chapters/01_attention.html#looking-away-a-mask",
    "position embedding": "chapters/07_embedding.html",
    "export onnx": "chapters/26_export.html#onnx-a-graph-that-others-read",
}


def test_ten_searches_find_their_section_among_the_first_three_while_one_types(site: Site) -> None:
    with site.visit("search.html") as visit:
        field, links = visit.page.locator(".bd-search-container input[type=search]"), "#search-results li a"
        for asked, wanted in WANTED.items():
            field.fill(asked)
            found = [one.get_attribute("href") for one in visit.page.locator(links).all()[:3]]
            assert wanted in found, f"{asked}: {found}"
        field.fill("zzzz")
        assert "Nothing found" in visit.page.locator(".search-summary").inner_text()
        assert visit.complaints == []


@pytest.mark.parametrize("mode", ["light", "phone"])
def test_results_show_the_words_that_were_asked_for_and_one_field(site: Site, mode: str) -> None:
    with site.visit("search.html?q=CLS tokens", mode) as visit:
        found = visit.page.locator("#search-results li")
        found.first.wait_for()
        marks = {mark.lower() for mark in visit.page.locator("#search-results mark").all_inner_texts()}
        assert (
            {"class token", "token"} <= marks <= {"class token", "class tokens", "token", "tokens", "cls token", "cls"}
        )
        section = found.filter(has=visit.page.locator("a[href*='14_attention_distance.html#']"))
        assert section.first.locator(".search-where").inner_text().startswith("Chapter 14 · ")
        fields = visit.page.locator("input[type=search], .search-button, .search-button-field")
        assert fields.locator("visible=true").count() == 1
        assert visit.complaints == []


def test_search_keeps_the_reference_of_the_code_back_until_it_is_asked_for(site: Site) -> None:
    with site.visit("search.html?q=attention") as visit:
        code = visit.page.locator("#search-results a[href*='api/']")
        visit.page.locator("#search-results li").first.wait_for()
        assert code.count() == 0
        visit.page.locator(".search-filter input").check()
        code.first.wait_for(state="attached")
        assert visit.complaints == []


def test_on_a_phone_both_sidebars_open_and_close_by_touch_and_key(site: Site) -> None:
    with site.visit(CHAPTER, "phone") as visit:
        contents = visit.page.locator("nav.bd-docs-nav a", has_text="Notation").first
        assert contents.is_hidden()
        visit.page.locator(".primary-toggle").locator("visible=true").first.tap()
        contents.wait_for()
        visit.page.keyboard.press("Escape")
        contents.wait_for(state="hidden")
        section = visit.page.locator(":is(.bd-sidebar-secondary, dialog) a", has_text="What it costs").first
        assert section.is_hidden()
        visit.page.locator(".secondary-toggle").locator("visible=true").first.tap()
        section.wait_for()
        visit.page.keyboard.press("Escape")
        section.wait_for(state="hidden")


def test_the_first_tab_offers_to_skip_to_the_text(site: Site) -> None:
    with site.visit(PAGE) as visit:
        visit.page.keyboard.press("Tab")
        assert "Skip" in visit.page.evaluate("document.activeElement.textContent")
        visit.page.keyboard.press("Enter")
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("!!document.activeElement.closest('article')"), "behind the bar of buttons"


def test_without_scripts_the_text_the_figures_and_the_links_are_there(site: Site) -> None:
    with site.browser.new_context(java_script_enabled=False, viewport=dict(width=1280, height=900)) as context:
        page = context.new_page()
        page.goto(site.base + EXPLORER)
        assert page.locator("article h1").inner_text()
        assert page.locator("nav.bd-docs-nav a").first.is_visible()
        assert page.locator("article p").count() > 20
        assert page.locator("article .highlight pre:visible").count() > 5
        assert page.locator("article figure img").first.is_visible()
        assert page.locator(".vitbook-live img").first.is_visible()
        assert page.locator(".pst-js-only").locator("visible=true").count() == 0, "buttons that need scripts are away"
        summary = page.locator("article details:not(.hide) > summary").first
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("article details[open]").count() == 1
