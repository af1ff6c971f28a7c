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
    return b.run('[...document.querySelectorAll(".turn")].map(e => e.textContent)')


b = Browser()
try:
    b.window(1100, 760, False)
    b.call('Page.navigate', url=url + '/')
    b.until('document.readyState === "complete" && document.getElementById("model").textContent !== "monotron"')
    b.picture('empty')
    b.run('for (const [id, v] of [["temperature", 0], ["tokens", 6]]) document.getElementById(id).value = v')
    one = ask('Hi')
    two = ask('Go on')
    print(two)
    if len(two) != 4 or not all(two[1::2]):
        raise SystemExit('the page does not show two answers')
    same = b.run('''(async () => (await (await fetch("/v1/chat/completions", {method: "POST", body: JSON.stringify({messages:
        [{role: "user", content: "Hi"}], max_tokens: 6, temperature: 0})})).json()).choices[0].message.content)()''')
    if same != one[1]:
        raise SystemExit(f'the page shows {one[1]!r}, the server answers {same!r}')
    for name, size in {'desktop': (1100, 760, False), 'desktop-dark': (1100, 760, True), 'phone': (390, 780, False, True), 'phone-dark': (390, 780, True, True)}.items():
        b.window(*size)
        b.picture(name)
    b.run('document.getElementById("way").value = "text"; document.getElementById("way").dispatchEvent(new Event("change")); document.getElementById("tokens").value = 40')
    b.window(1100, 760, False)
    ask('The king')
    b.picture('continued')
    b.run('document.getElementById("tokens").value = 100000')
    ask('x' * 200)
    if 'exceed' not in b.run('document.querySelector(".error").textContent'):
        raise SystemExit('a refusal is not shown')
    b.picture('refused')
    unexpected = [e for e in b.errors if '400' not in json.dumps(e)]
    if unexpected:
        raise SystemExit(f'errors of the page: {unexpected}')
finally:
    b.process.kill()
    b.process.wait()
