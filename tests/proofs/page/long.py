"""long.py ADDRESS...: a page of 100,000 steps is drawn within a second, in less than 50 MB."""
import sys

from browser import Browser

browser = Browser()
try:
    browser.open("about:blank")  # what the browser itself takes to begin is not the page's
    for address in sys.argv[1:]:
        times = []
        for _ in range(5):
            browser.open(address)
            browser.becomes("window.drawnAt > 0", within=120)
            times.append(browser.eval("window.drawnAt") / 1000)
        held = browser.heap() / 1e6
        steps, last = browser.eval("[data.runs[0].steps[0].length, data.runs[0].steps[0].at(-1)]")
        charts = browser.eval("document.querySelectorAll('#charts figure:not([hidden]) canvas').length")
        times = [f"{t:.2f}" for t in times]
        print(f"{address.split(':')[0]}: {charts} charts of {last} steps ({steps} of them on the page) drawn {', '.join(times)} s after the page was asked for; {held:.1f} MB held", flush=True)
        if last != 100000 or charts < 6 or float(sorted(times)[2]) > 1 or held > 50:
            raise SystemExit("FAILED: not 100,000 steps with their charts in under 1 s (the median of five) and 50 MB")
finally:
    browser.close()
