"""Chromium without a window, steered over a pipe by its DevTools protocol. Standard library alone."""

import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
import time

# Longer than anything takes that works, on a machine with other load.
LONG = 60


def truth(script):
    """An expression whose value can be sent: an element cannot."""
    return f"((value) => value instanceof Node ? true : value)({script})"


class Chromium:
    """A browser with a profile of its own."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="tunnel-browser-")
        # The browser reads commands from descriptor 3 and writes to descriptor 4.
        shell = ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh"]
        options = [
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--hide-scrollbars",
            # Each origin has a process, so that its frame is a target of its own.
            "--site-per-process",
            "--allow-loopback-in-peer-connection",
            "--disable-features=WebRtcHideLocalIpsWithMdns",
            f"--user-data-dir={self.profile.name}",
        ]
        self.process = subprocess.Popen(
            [*shell, program, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.lock = threading.Lock()
        self.last = 0
        self.answers = {}
        self.events = queue.Queue()
        self.log = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        rest = b""
        while piece := os.read(self.process.stdout.fileno(), 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.pop(message["id"], queue.Queue()).put(message)
                else:
                    self._note(message)

    def _note(self, message):
        method, told = message["method"], message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            values = [str(arg.get("value", arg.get("description"))) for arg in told["args"]]
            self.log.append(" ".join(values))
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.log.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            entry = told["entry"]
            self.log.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Target.attachedToTarget":
            self.events.put((told["sessionId"], told["targetInfo"]))

    def command(self, method, session=None, **params):
        answer = queue.Queue()
        with self.lock:
            self.last += 1
            self.answers[self.last] = answer
            message = {"id": self.last, "method": method, "params": params}
            if session:
                message["sessionId"] = session
            self.process.stdin.write(json.dumps(message).encode() + b"\0")
            self.process.stdin.flush()
        try:
            said = answer.get(timeout=LONG)
        except queue.Empty:
            raise AssertionError(f"no answer to {method}") from None
        if "error" in said:
            raise AssertionError(f"{method}: {said['error']}")
        return said["result"]

    def page(self, url="about:blank"):
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        page.go(url)
        return page

    def close(self):
        os.killpg(self.process.pid, 9)
        self.process.wait()
        self.profile.cleanup()


class Page:
    """A tab, or a frame with a process of its own."""

    def __init__(self, browser, session, target=None):
        self.browser = browser
        self.session = session
        self.target = target
        for domain in ["Page", "Runtime", "Log"]:
            try:
                self.command(f"{domain}.enable")
            except AssertionError:
                pass
        self.command(
            "Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True
        )

    def command(self, method, **params):
        return self.browser.command(method, self.session, **params)

    def close(self):
        self.browser.command("Target.closeTarget", targetId=self.target)

    def go(self, url):
        self.command("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression, which may be a promise."""
        said = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in said:
            details = said["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description", details["text"]))
        return said["result"].get("value")

    def until(self, script, what=None):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + LONG
        last = None
        while time.monotonic() < end:
            try:
                if value := self.run(truth(script)):
                    return value
            except AssertionError as error:
                last = error
            time.sleep(0.05)
        try:
            text = self.run("document.body.innerText")
        except AssertionError as error:
            text = error
        log = "\n".join(self.browser.log[-20:])
        raise AssertionError(f"never: {what or script} ({last})\npage: {text}\nlog: {log}")

    def frame(self, condition):
        """The frame in which an expression is true."""
        end = time.monotonic() + LONG
        frames, seen = [], []
        while time.monotonic() < end:
            try:
                session, target = self.browser.events.get(timeout=0.1)
                if target["type"] == "iframe":
                    frames.append(Page(self.browser, session))
            except queue.Empty:
                pass
            except AssertionError as error:
                # A frame of a tab that is closed.
                seen.append(error)
            for frame in frames:
                try:
                    if frame.run(truth(condition)):
                        return frame
                    seen.append(frame.run("location.href"))
                except AssertionError as error:
                    seen.append(error)
        raise AssertionError(f"no frame {condition}: {seen[-5:]}; log: {self.browser.log[-20:]}")

    def size(self, width, height, dark=False):
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def shot(self, path):
        data = self.command("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
