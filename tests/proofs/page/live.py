"""Drives the page of a run that trains: live.py FOLDER COMMAND..., where COMMAND trains with --log-jsonl FOLDER/steps.jsonl
and --save FOLDER/ck. The run is killed and started again while the browser looks on."""
import json
import os
import re
import socket
import subprocess
import sys
import time

from browser import Browser

folder, command = sys.argv[1], sys.argv[2:]
log, notes = os.path.join(folder, "steps.jsonl"), os.path.join(folder, "notes")
shots = os.environ.get("SHOTS", folder)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
address = f"http://127.0.0.1:{port}/"


def start():
    with open(notes, "a") as out:
        return subprocess.Popen(command + ["--dashboard-addr", f"127.0.0.1:{port}"], stdout=out, stderr=out)


def fail(text):
    raise SystemExit("FAILED: " + text)


def entries():
    """Training steps of the log by iteration, the later of two; evaluations behind a step that was trained again are gone."""
    steps, evaluations = {}, {}
    with open(log) as file:
        for line in file:
            try:
                e = json.loads(line)
            except ValueError:
                continue
            if "validation" in e:
                evaluations.setdefault(e["validation"], {})[e["iteration"]] = e
                continue
            if steps and e["iteration"] <= max(steps):
                steps = {i: s for i, s in steps.items() if i < e["iteration"]}
                evaluations = {k: {i: s for i, s in v.items() if i < e["iteration"]} for k, v in evaluations.items()}
            steps[e["iteration"]] = e
    return steps, evaluations


def of_ranks(e, place):
    seconds = sorted(e.get("rank_seconds") or [])
    return seconds[place(len(seconds))] if seconds else None


# What a column of the page must be, from a line of the log (docs/logging.md).
columns = {
    "iteration": lambda e: e["iteration"],
    "tokens": lambda e: e["consumed_tokens"],
    "loss": lambda e: e["loss"]["lm loss"],
    "learning_rate": lambda e: e["learning_rate"],
    "grad_norm": lambda e: e.get("grad_norm"),
    "tokens_per_second": lambda e: e["tokens_per_second"],
    "mfu": lambda e: e.get("mfu"),
    "memory_bytes": lambda e: e.get("memory_bytes"),
    "planned_memory_bytes": lambda e: e.get("planned_memory_bytes"),
    "data_seconds": lambda e: e["phase_seconds"]["data"],
    "seconds": lambda e: e["seconds"],
    "loss_scale": lambda e: e["loss_scale"],
    "skipped": lambda e: 1 if e.get("skipped") else 0,
    "slowest_rank_seconds": lambda e: of_ranks(e, lambda n: n - 1),
    "median_rank_seconds": lambda e: of_ranks(e, lambda n: (n - 1) // 2),
    "straggler_score": lambda e: min(e["straggler_scores"]) if e.get("straggler_scores") else None,
    "straggler_own_score": lambda e: min(e["straggler_own_scores"]) if e.get("straggler_own_scores") else None,
    "rewards_margins": lambda e: e.get("rewards_margins"),
    "rewards_accuracies": lambda e: e.get("rewards_accuracies"),
    "bits_per_byte": lambda e: e.get("bits_per_byte"),
    "fullest_expert": lambda e: max((b["max"] for b in e.get("experts") or []), default=None),
}
evaluated = ("iteration", "tokens", "loss", "bits_per_byte")


def compare(browser, least):
    """Every number that the page holds and draws against the log."""
    browser.becomes(f"data.runs[0].steps[0].length >= {least}", within=240)
    page = browser.eval("({fields: data.fields, steps: data.runs[0].steps, evaluations: data.runs[0].evaluations})")
    steps, evaluations = entries()
    fields, compared = page["fields"], 0
    have = dict(zip(fields, page["steps"]))
    for row, iteration in enumerate(have["iteration"]):
        e = steps.get(iteration) or fail(f"the page has step {iteration}, the log has not")
        for name, of in columns.items():
            if have[name][row] != of(e):
                fail(f"step {iteration}: {name} is {have[name][row]} on the page, {of(e)} in the log")
            compared += 1
    if have["iteration"] != [i for i in sorted(steps) if i <= have["iteration"][-1]]:
        fail("steps are missing on the page")
    for split, table in page["evaluations"].items():
        for i in range(len(table[0])):
            e = evaluations[split][table[0][i]]
            for name in evaluated:
                if table[fields.index(name)][i] != columns[name](e):
                    fail(f"{split} at {table[0][i]}: {name}")
                compared += 1
    drawn = browser.eval("""(() => { $('smoothing').value = 0; draw(true); const c = drawn.get('loss').chart.data; const out = [c[0], c[1]]; $('smoothing').value = 0.8; draw(true); return out })()""")
    for x, y in zip(*drawn):
        if y is not None and y != steps[x]["loss"]["lm loss"]:
            fail(f"the loss drawn at step {x} is {y}, {steps[x]['loss']['lm loss']} in the log")
        compared += y is not None
    print(f"{compared} numbers of {len(have['iteration'])} steps, and of evaluations, are the log's", flush=True)


panels = ["loss", "learning-rate", "gradient-norm", "speed", "mfu", "memory", "data-wait", "ranks", "stragglers", "experts", "loss-scale"]
details = ["memory-by-purpose", "rank-spread", "expert-balance", "lanes", "samples"]


def charts(browser):
    """Every panel has a chart with ink on it."""
    for panel in panels:
        colours = browser.eval(f"""(() => {{ const c = document.querySelector('#{panel} canvas'); if (!c) return 0;
          const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
          for (let i = 0; i < p.length; i += 4) seen.add(p[i] << 24 | p[i + 1] << 16 | p[i + 2] << 8 | p[i + 3]); return seen.size }})()""")
        if not colours or colours < 4:
            fail(f"{panel}: its canvas has {colours} colours")
    for part in details:
        if not browser.eval(f"!!document.getElementById('{part}')"):
            fail(f"there is no {part}")
    print(f"{len(panels)} charts are drawn, {len(details)} other panels are there", flush=True)


def delays(browser, seconds):
    """How long after a step its place on the chart is there, by the clock of this machine."""
    browser.eval("""(() => { window.arrived = {}; let before = 0; window.look = setInterval(() => {
      const x = drawn.get('loss').chart.data[0], n = x[x.length - 1];
      if (n !== before) { for (let i = x.length - 1; i >= 0 && x[i] > before; i--) window.arrived[x[i]] = Date.now(); before = n; } }, 10) })()""")
    first = max(entries()[0])
    time.sleep(seconds)
    arrived = browser.eval("clearInterval(window.look), window.arrived")
    steps = entries()[0]
    late = sorted(at / 1000 - stamp(steps[int(i)]["time"]) for i, at in arrived.items() if int(i) > first + 1 and int(i) in steps)
    if not late:
        fail(f"no new step in {seconds} s")
    print(f"{len(late)} steps were drawn {1000 * late[0]:.0f} to {1000 * late[-1]:.0f} ms after they ended, in the median {1000 * late[len(late) // 2]:.0f}", flush=True)
    if late[-1] > 2:
        fail("a step took longer than 2 s to be drawn")


def stamp(text):
    """Seconds of an RFC 3339 time, whatever digits it has."""
    whole, digits, zone = re.fullmatch(r"(.*?)(\.\d+)?(Z|[+-]\d\d:\d\d)", text).groups()
    from datetime import datetime
    return datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone)).timestamp() + float(digits or 0)


def pictures(browser):
    for name, width, height, dark, phone in [("page", 1400, 900, False, False), ("page-dark", 1400, 900, True, False),
                                             ("page-phone", 390, 844, False, True), ("page-phone-dark", 390, 844, True, True)]:
        browser.shape(width, height, dark, phone)
        over = browser.eval("document.documentElement.scrollWidth - innerWidth")
        browser.picture(os.path.join(shots, name + ".png"))
        browser.picture(os.path.join(shots, name + "-whole.png"), whole=True)
        if over > 0:
            fail(f"{name}: the page is {over} pixels wider than the window")
    browser.shape(1280, 900, False)


run, browser = start(), Browser()
try:
    for _ in range(1200):
        if run.poll() is not None:
            fail(f"the run ended:\n{open(notes).read()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.1)
    browser.open(address)
    browser.becomes("typeof data === 'object' && !!data && document.body.dataset.ready", "yes", within=120)
    while max(entries()[0], default=0) < 24:
        if run.poll() is not None:
            fail(f"the run ended:\n{open(notes).read()[-2000:]}")
        time.sleep(0.2)
    browser.becomes("!!document.getElementById('lanes') && !!document.getElementById('samples')", within=240)
    charts(browser)
    compare(browser, 24)
    delays(browser, 20)
    if browser.eval("document.body.dataset.owned") is not None:
        fail("a script of the run's text ran")
    if not browser.eval("document.getElementById('samples').textContent.includes('<img')"):
        fail("the prompt that is markup is not there as text")

    marks = browser.eval("data.runs[0].state.marks.filter((m) => m.kind === 'checkpoint').length")
    if not marks:
        fail("no checkpoint is marked")
    reached = browser.eval("data.runs[0].steps[0].at(-1)")
    run.kill()
    run.wait()
    browser.becomes("document.getElementById('state').textContent.startsWith('No connection')")
    print(f"kill -9 at step {reached}: the page says that it has no connection", flush=True)
    run = start()
    took = browser.becomes("document.getElementById('state').textContent.startsWith('Live')", within=240)
    print(f"started again: the page follows it after {took:.1f} s", flush=True)
    browser.becomes("document.getElementById('events').textContent.includes('resumed; the run before it had reached step')", within=240)
    compare(browser, reached + 3)
    delays(browser, 10)
    pictures(browser)
finally:
    browser.close()
    run.kill()
    run.wait()
print("a live page: ok")
