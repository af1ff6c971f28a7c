"""states.py FOLDER LIVE: looks at the reports of FOLDER, and at the page of a run that starts, trains and then stands still."""
import json
import os
import sys

from browser import Browser

folder, live = sys.argv[1:]
shots, axe = os.environ["SHOTS"], os.environ.get("AXE", "")
rules = open(axe).read() if axe else ""
shapes = [("", 1400, 900, False, False), ("-dark", 1400, 900, True, False), ("-phone", 390, 844, False, True), ("-phone-dark", 390, 844, True, True)]
looked = 0

# Elements whose text is cut off: wider or higher than they are, without a way to scroll.
CUT = """[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('svg, .away, legend, script, style') && getComputedStyle(e).overflow === 'hidden'
  && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)).map((e) => e.className + ': ' + e.textContent.slice(0, 60))"""
# Labels of the axes that lie outside of their canvas, from what was drawn there.
TEXTS = """(() => { const real = CanvasRenderingContext2D.prototype.fillText; window.texts = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { const w = this.measureText(text).width, at = {left: 0, start: 0, center: w / 2, right: w, end: w}[this.textAlign];
    const p = this.getTransform().transformPoint({x, y}); window.texts.push([text, p.x - at, p.x - at + w, this.canvas.width]); return real.apply(this, arguments); } })()"""


def fail(text):
    raise SystemExit("FAILED: " + text)


def look(name, whole=True):
    """Pictures of a state in all shapes; what is cut off, too wide, or against axe's rules is a failure."""
    global looked
    browser.eval(TEXTS)
    for suffix, width, height, dark, phone in shapes:
        browser.shape(width, height, dark, phone)
        browser.eval("texts = [], draw(true)")
        outside = browser.eval("texts.filter(([, from, to, wide]) => from < -0.5 || to > wide + 0.5)")
        browser.picture(os.path.join(shots, f"{name}{suffix}.png"), whole=whole)
        over = browser.eval("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            fail(f"{name}{suffix}: the page is {over} pixels wider than the window")
        cut = browser.eval(CUT)
        if cut:
            fail(f"{name}{suffix}: cut off: {cut}")
        if outside:
            fail(f"{name}{suffix}: labels outside of their chart: {outside}")
        if rules:
            browser.eval(rules)
            wrong = browser.eval("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((r) => [r.passes.length, ...r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 120) + ' ' + n.failureSummary.slice(0, 200)).join('; '))])")
            if not wrong or len(wrong) > 1:
                fail(f"{name}{suffix}: {wrong and wrong[1:]}")
        looked += 1


def status(want, within=60):
    browser.becomes("document.querySelector('#status .pill')?.textContent", want, within)


browser = Browser()
try:
    browser.open(live)
    browser.becomes("document.body.dataset.ready", "yes")
    status("starting")
    look("starting")
    status("running", 120)
    browser.becomes("data.runs[0].steps[0].length > 20")
    look("running")

    # Each report, and what it must say.
    for name, said, there in [
            ("finished", "done", ["loss", "mfu", "memory", "memory-by-purpose", "samples"]),
            ("failed", "failed", ["loss", "ranks", "stragglers", "rank-spread"]),
            ("mixture", "done", ["ranks", "stragglers", "experts", "loss-scale", "memory-by-purpose", "rank-spread", "expert-balance", "lanes", "samples"]),
            ("empty", "no step", []),
            ("compared", None, ["loss", "memory-by-purpose", "samples"])]:
        browser.open(f"file://{folder}/{name}.html")
        browser.becomes("document.body.dataset.ready", "yes")
        if said:
            status(said)
        for panel in there:
            if browser.eval(f"document.getElementById('{panel}')?.checkVisibility()") is not True:
                fail(f"{name} has no {panel}")
        look(name)
        print(f"{name}: {browser.eval('document.title')!r}, {browser.eval('document.querySelectorAll(`main figure`).length')} panels, page of {os.path.getsize(f'{folder}/{name}.html') // 1000} kB", flush=True)

    # Alerts and verdicts jump to their step.
    browser.open(f"file://{folder}/failed.html")
    browser.becomes("document.body.dataset.ready", "yes")
    at = browser.eval("document.querySelector('#alerts li button').click(), [document.activeElement.closest('figure')?.id, drawn.get('loss').chart.cursor.idx !== null]")
    if at != ["loss", True] and not (at and at[1]):
        fail(f"a click on the verdict leads to {at}")

    # The run that stands still says for how long.
    browser.open(live)
    browser.becomes("document.body.dataset.ready", "yes")
    status("stalled", 240)
    browser.becomes("document.querySelector('#courses').textContent.includes('no step for')")
    look("stalled")
    print(json.dumps(browser.eval("document.querySelector('#courses').textContent")))

    # Notes are written on the page, and are there for others.
    browser.eval("[...document.querySelectorAll('#about .written button')].find((b) => b.textContent === 'Write notes').click(), document.querySelector('.written textarea').value = 'stood still at step 299'")
    look("notes", whole=False)
    browser.eval("[...document.querySelectorAll('#about .written button')].find((b) => b.textContent === 'Save').click()")
    browser.becomes("document.querySelector('.written .notes')?.textContent", "stood still at step 299")
    if open(f"{folder}/live/notes.md").read() != "stood still at step 299":
        fail("the notes are not in notes.md")
finally:
    browser.close()
print(f"{looked} looks, {'each with' if rules else 'without'} axe's rules: ok")
