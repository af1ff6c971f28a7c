"""compare.py REPORT: what the page of three runs, opened from disk, shows."""
import os
import sys

from browser import Browser

browser = Browser()
try:
    browser.open("file://" + sys.argv[1])
    browser.becomes("window.drawnAt > 0")
    text = browser.eval("document.querySelector('#summary table').innerText")
    first = browser.eval("[...document.querySelectorAll('main h2')].find((h) => h.offsetParent).textContent")
    print(text)
    if not first.startswith("Runs, what differs first") or not all(lr in text for lr in ("--lr", "1e-4", "1e-3", "1e-2")):
        raise SystemExit(f"FAILED: the page begins with {first!r}: {text}")
    rows = browser.eval("document.querySelectorAll('#summary thead th.flag').length")
    lines = browser.eval("drawn.get('loss').list.filter((c) => c.label).map((c) => [c.label, c.points[0].length])")
    print(f"{rows} flags differ; curves of loss and their points: {lines}")
    if [n for _, n in lines] != [200, 8, 200, 8, 200, 8]:
        raise SystemExit("FAILED: each run has 200 steps and 8 evaluations")
    browser.eval("document.querySelectorAll('#summary .sort')[1].click()")
    order = browser.eval("[...document.querySelectorAll('#summary tbody th')].map((e) => e.textContent)")
    if order != ["lr-1e-4", "lr-1e-3", "lr-1e-2"]:
        raise SystemExit(f"FAILED: sorted by --lr the runs are {order}")
    # What a run was kept under is in its checkpoint too: learning rate and the folders alone differ.
    for name, dark, width in [("compare", False, 1400), ("compare-dark", True, 1400), ("compare-phone", False, 390)]:
        browser.shape(width, 900, dark, width < 500)
        over = browser.eval("document.documentElement.scrollWidth - innerWidth")
        browser.picture(os.path.join(os.environ["SHOTS"], name + ".png"), whole=True)
        if over > 0:
            raise SystemExit(f"FAILED: {name}: the page is {over} pixels wider than the window")
finally:
    browser.close()
print("a comparison: ok")
