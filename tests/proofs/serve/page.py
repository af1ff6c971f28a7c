"""page.py URL FOLDER CHROMIUM: drives the chat page in a headless browser and leaves pictures of it. Exits 1 where the page does not
show what the server answers, has errors, or is wider than its window."""
import base64, json, os, select, subprocess, sys, tempfile, time

url, folder, chromium = sys.argv[1:]


class Browser:
    """Chromium, told what to do through a pipe."""

    def __init__(self):
        theirs, self.to = os.pipe()
        self.back, answers = os.pipe()

        def plug():
            a, b = os.dup(theirs), os.dup(answers)
            os.dup2(a, 3), os.dup2(b, 4)

        self.data = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen([chromium, '--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', f'--user-data-dir={self.data.name}',
            '--remote-debugging-pipe'], preexec_fn=plug, close_fds=False, stderr=subprocess.DEVNULL)
        self.rest, self.calls, self.session, self.errors = b'', 0, None, []
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in 'Page', 'Runtime', 'Log':
            self.call(domain + '.enable')

    def call(self, method, **params):
        self.calls += 1
        message = {'id': self.calls, 'method': method, 'params': params, **({'sessionId': self.session} if self.session else {})}
        os.write(self.to, json.dumps(message).encode() + b'\0')
        while True:
            while b'\0' not in self.rest:
                if not select.select([self.back], [], [], 60)[0]:
                    raise SystemExit(f'{method} {params}: no answer')
                self.rest += os.read(self.back, 1 << 20)
            text, self.rest = self.rest.split(b'\0', 1)
            x = json.loads(text)
            if x.get('method') == 'Runtime.exceptionThrown' or x.get('method') == 'Log.entryAdded' and x['params']['entry']['level'] == 'error':
                self.errors.append(x['params'])
            if x.get('id') == self.calls:
                if 'error' in x:
                    raise SystemExit(f'{method}: {x["error"]}')
                return x['result']

    def run(self, script):
        r = self.call('Runtime.evaluate', expression=script, awaitPromise=True, returnByValue=True)
        if 'exceptionDetails' in r:
            raise SystemExit(f'{script}: {r["exceptionDetails"]}')
        return r['result'].get('value')

    def until(self, script):
        for _ in range(300):
            if self.run(script):
                return
            time.sleep(0.1)
        raise SystemExit(f'never: {script}')

    def window(self, width, height, dark, phone=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])

    def picture(self, name):
        self.run('new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))')
        wide = self.run('document.documentElement.scrollWidth - innerWidth')
        if wide > 0:
            raise SystemExit(f'{name}: the page is {wide} pixels wider than its window')
        with open(f'{folder}/{name}.png', 'wb') as f:
            f.write(base64.b64decode(self.call('Page.captureScreenshot', format='png')['data']))


def ask(text):
    b.run(f'document.getElementById("text").value = {json.dumps(text)}; document.getElementById("form").requestSubmit()')
    b.until('document.getElementById("stop").hidden')
    return b.run('turns.map(t => t.content)')


# Texts whose contrast with what is behind them is less than 4.5:1 (WCAG 2.2, 1.4.3), as words.
FAINT = r"""(() => {
  const part = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const rgb = c => c.match(/[\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] };
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest('.away, script, style, noscript')) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${e.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return faint;
})()"""


rules = open(os.environ['AXE']).read() if os.environ.get('AXE') else ''
checked = 0  # looks by axe-core's rules


def looked_at(name):
    global checked
    faint = b.run(FAINT)
    if faint:
        raise SystemExit(f'{name}: too little contrast: {faint}')
    if rules:
        b.run(rules + '; 0')
        wrong = b.run("""axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 120)).join('; ')))""")
        if wrong:
            raise SystemExit(f'{name}: axe finds {wrong}')
        checked += 1
    b.picture(name)


KEYS = {'Enter': (13, '\r'), 'Tab': (9, ''), 'Escape': (27, ''), ' ': (32, ' ')}


def press(key, shift=False):
    """A key of the keyboard, as the browser gets it."""
    code, text = KEYS[key]
    for kind in 'keyDown', 'keyUp':
        b.call('Input.dispatchKeyEvent', type=kind, key=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0, **({'text': text} if text and kind == 'keyDown' else {}))


def by_keyboard():
    """A conversation without a mouse: a message of two lines, what one can do with it, an answer that is stopped."""
    b.run('fresh()')
    b.call('Input.insertText', text='Hi')
    press('Enter', shift=True)
    b.call('Input.insertText', text='there')
    if b.run('document.getElementById("text").value') != 'Hi\nthere':
        raise SystemExit('Shift+Enter makes no line')
    press('Enter')
    b.until('turns.length === 2 && document.getElementById("stop").hidden')
    reached = []
    b.run('document.getElementById("model").tabIndex = -1, document.getElementById("model").focus()')
    while len(reached) < 20 and 'text' not in reached:
        press('Tab')
        reached.append(b.run('document.activeElement.id || document.activeElement.textContent'))
    if reached != ['new', 'open', 'turns', 'Copy', 'Edit', 'Copy', 'Regenerate', 'text']:
        raise SystemExit(f'Tab leads to {reached}')
    if b.run('getComputedStyle(document.activeElement).outlineStyle') == 'none':
        raise SystemExit('what has the focus is not marked')
    for _ in range(3):
        press('Tab', shift=True)
    if b.run('document.activeElement.textContent') != 'Edit':
        raise SystemExit('Shift+Tab does not lead back')
    # Edit: the message is back, and what followed it is gone.
    b.run('[...document.querySelectorAll(".turn.user button")].find((e) => e.textContent === "Edit").focus()')
    press('Enter')
    if b.run('[turns.length, document.getElementById("text").value, document.activeElement.id]') != [0, 'Hi\nthere', 'text']:
        raise SystemExit('Edit does not bring the message back')
    # Copy is what the answer says.
    press('Enter')
    b.until('turns.length === 2 && document.getElementById("stop").hidden')
    b.run('window.copied = null, navigator.clipboard.writeText = async (text) => { window.copied = text }')
    b.run('[...document.querySelectorAll(".turn.assistant button")].find((e) => e.textContent === "Copy").focus()')
    press('Enter')
    b.until('window.copied === turns[1].content && document.activeElement.textContent === "Copied"')
    # Settings by the keyboard; Escape closes them, and gives the focus back.
    b.run('document.getElementById("open").focus()')
    press('Enter')
    b.until('!document.getElementById("drawer").hidden && document.activeElement.id === "way"')
    press('Escape')
    b.until('document.getElementById("drawer").hidden && document.activeElement.id === "open"')
    # Escape stops an answer; what came is kept.
    b.run('document.getElementById("tokens").value = 90, document.getElementById("text").focus()')
    b.run('window.real = events, events = async function* (reply) { for await (const e of window.real(reply)) { await new Promise((r) => setTimeout(r, 30)); yield e } }')
    b.call('Input.insertText', text='Go on')
    press('Enter')
    b.until('document.querySelector(".turn.assistant:last-of-type .body")?.textContent && turns.length === 3 && !document.getElementById("stop").hidden && document.querySelectorAll(".turn.assistant .body")[1]?.textContent.length > 0')
    press('Escape')
    b.until('document.getElementById("stop").hidden')
    b.run('events = window.real')
    if b.run('turns.length') != 4 or b.run('document.getElementById("said").textContent') != 'The answer is stopped.' or b.run('turns[3].speed') != 'stopped':
        raise SystemExit(f'Escape does not stop the answer: {b.run("[turns.length, turns.at(-1).speed]")}')
    b.run('document.getElementById("tokens").value = 6')
    looked_at('stopped')
    print(f'by the keyboard: {len(reached)} stops of Tab, a message, Edit, Copy, settings, Escape')


MARKDOWN = '''# A *title*

**bold** `a*b*c` <img src=x onerror="document.body.dataset.owned=1"> [good](https://example.com) [bad](javascript:alert(1))

- one
  - two

```html
<script>document.body.dataset.owned=1</script>
```

| a | b |
|---|---|
| 1 | `2` |
'''

b = Browser()
try:
    b.window(1400, 900, False)
    b.call('Page.navigate', url=url + '/')
    b.until('document.readyState === "complete" && document.getElementById("model").textContent !== "monotron"')
    looked_at('welcome')
    if 'context' not in b.run('document.getElementById("facts").textContent') or b.run('[...document.querySelectorAll("#examples button")].map(e => e.textContent).join() === props.examples.chat.join() && props.examples.chat.length > 0') is not True:
        raise SystemExit('the welcome lacks facts or examples')
    b.run('for (const [id, v] of [["temperature", 0], ["tokens", 6]]) document.getElementById(id).value = v')
    one = ask('Hi')
    two = ask('Go on')
    print(two)
    if len(two) != 4 or not all(two[1::2]):
        raise SystemExit('the page does not show two answers')
    same = b.run('''(async () => (await (await fetch("/v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify({messages:
        [{role: "user", content: "Hi"}], max_tokens: 6, temperature: 0})})).json()).choices[0].message.content)()''')
    if same != one[1]:
        raise SystemExit(f'the page shows {one[1]!r}, the server answers {same!r}')
    b.run('[...document.querySelectorAll(".turn.assistant")].at(-1).querySelectorAll("button")[1].click()')
    b.until('document.getElementById("stop").hidden && turns.length === 4')
    if b.run('turns.map(t => t.content)') != two or 'tokens/s' not in b.run('document.querySelector(".turn.assistant .tools").textContent'):
        raise SystemExit('an answer that is made again is another, or has no speed')
    by_keyboard()
    b.run('fresh()')
    for n in range(20):
        answered = ask(f'And {n}?')
        if b.run('forgotten') > 0:
            break
    if 'not sent any more' not in b.run('document.querySelector(".note").textContent') or not answered[-1]:
        raise SystemExit('a full context is not said, or not answered')
    print(f'the context was full at message {2 * n + 1}: {b.run("forgotten")} messages are not sent any more, and the answer came')
    b.run('document.getElementById("new").click()')
    b.until('turns.length === 0 && !document.getElementById("welcome").hidden')
    b.run('(() => { const t = {role: "assistant", content: ' + json.dumps(MARKDOWN) + ', element: add("assistant", "Model")}; turns.push(t); paint(t); tools(t); document.getElementById("welcome").hidden = true })()')
    made = b.run('''(() => { const e = document.querySelector(".turn .body"); return [e.querySelector("img, script") === null, [...e.querySelectorAll("a")].map(a => a.href).join(), e.querySelector("code").textContent,
        e.querySelector("pre").textContent, e.querySelectorAll("ul ul li").length, e.querySelectorAll("td").length, document.body.dataset.owned === undefined] })()''')
    if made != [True, 'https://example.com/', 'a*b*c', '<script>document.body.dataset.owned=1</script>', 1, 2, True]:
        raise SystemExit(f'Markdown is shown as {made}')
    for name, size in {'desktop': (1400, 900, False), 'desktop-dark': (1400, 900, True), 'phone': (390, 844, False, True), 'phone-dark': (390, 844, True, True)}.items():
        b.window(*size)
        looked_at(name)
        b.run('drawer(true)')
        looked_at(name + '-settings')
        b.run('drawer(false)')
    b.window(1400, 900, False)
    began = time.time()
    b.run('''(() => { for (const text of ["`".repeat(20000), "*".repeat(20000), "**a".repeat(5000), "[".repeat(20000), "- ".repeat(5000), "> ".repeat(20000), "*a **a ".repeat(5000), "`a".repeat(5000),
        "# a" + " ".repeat(20000) + "b", "a|b\\n" + " ".repeat(20000) + "x"])
        markdown(text, document.createElement("div")) })()''')
    print(f'Markdown of 190,000 hostile characters is shown in {time.time() - began:.1f} s')
    b.run('document.getElementById("way").value = "text"; document.getElementById("way").dispatchEvent(new Event("change")); document.getElementById("tokens").value = 40')
    if not ask('The king')[0].startswith('The king'):
        raise SystemExit('a text is not continued')
    looked_at('continued')
    b.run('document.getElementById("way").value = "chat"; document.getElementById("way").dispatchEvent(new Event("change"))')
    ask('x' * 200)
    if 'was not answered' not in b.run('document.querySelector(".error").textContent') or b.run('document.getElementById("text").value.length') != 200:
        raise SystemExit('a refusal is not shown, or the message is lost')
    looked_at('refused')
    print(f'{checked} looks by axe-core: no violation of WCAG 2.2 AA' if rules else 'AXE is not set: no looks by axe-core')
    if b.errors:
        raise SystemExit(f'errors of the page: {b.errors}')
finally:
    b.process.kill()
    b.process.wait()
