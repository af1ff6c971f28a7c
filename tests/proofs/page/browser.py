"""A headless Chromium that is told what to do through a pipe (Chrome's DevTools protocol)."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self):
        program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
        if not program:
            raise SystemExit("skipped: no chromium here (apt-get install chromium)")
        self.folder = tempfile.mkdtemp()
        read_theirs, self.to = os.pipe()
        self.back, write_theirs = os.pipe()

        def places():
            theirs = os.dup(read_theirs), os.dup(write_theirs)
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={self.folder}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=places, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_theirs)
        os.close(write_theirs)
        self.rest, self.calls, self.session = b"", 0, None

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **params):
        """The answer of a method; events between are passed over."""
        self.calls += 1
        ask = {"id": self.calls, "method": method, "params": params}
        if self.session:
            ask["sessionId"] = self.session
        os.write(self.to, json.dumps(ask).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                more = os.read(self.back, 1 << 20)
                if not more:
                    raise SystemExit(f"FAILED: chromium ended in {method}")
                self.rest += more
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise SystemExit(f"FAILED: {method}: {answer['error']}")
                return answer["result"]

    def open(self, address):
        """A tab of its own; window.drawnAt is when its page was on the screen, in milliseconds since it was asked for."""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source="""new MutationObserver((_, o) => { if (document.body?.dataset.ready) { o.disconnect();
          requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnAt = performance.now() })) } })
          .observe(document, {attributes: true, subtree: true, attributeFilter: ['data-ready']})""")
        self.call("Page.navigate", url=address)

    def eval(self, expression):
        """The value of an expression of the page, as JSON has it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            return None
        return answer["result"].get("value")

    def becomes(self, expression, want=True, within=60):
        """Waits until an expression has a value; the seconds that took."""
        began, got = time.time(), None
        while time.time() - began < within:
            got = self.eval(expression)
            if got == want:
                return time.time() - began
            time.sleep(0.05)
        raise SystemExit(f"FAILED: {expression} is {got!r} after {within} s, not {want!r}")

    def heap(self):
        """Bytes that the page's script holds, and that it has asked for, after what is unused was collected."""
        self.call("HeapProfiler.collectGarbage")
        answer = self.call("Runtime.getHeapUsage")
        return answer["usedSize"] + answer.get("backingStorageSize", 0)

    def shape(self, width, height, dark, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        time.sleep(1)

    def picture(self, path, whole=False):
        clip = {}
        if whole:
            height = self.eval("document.documentElement.scrollHeight")
            clip = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": self.eval("innerWidth"), "height": height, "scale": 1}}
        data = self.call("Page.captureScreenshot", format="png", **clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
