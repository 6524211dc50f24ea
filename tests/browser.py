"""A real headless Chromium for the tests of the report, driven over its DevTools pipe; no further library is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
REPLY_SECONDS = 540
# Puts the pipe's ends where Chromium looks for them, 3 and 4, and becomes Chromium.
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of an installed Chromium (BOXQTE_BROWSER names another one), or None."""
    named = os.environ.get("BOXQTE_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One process, one page. Messages are JSON texts that end in a zero byte, on the descriptors 3 and 4."""

    def __init__(self, path: str):
        self._profile = tempfile.TemporaryDirectory(prefix="boxqte-browser-", ignore_cleanup_errors=True)
        read_commands, self._commands = os.pipe()
        self._replies, write_replies = os.pipe()
        line = [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
                f"--user-data-dir={self._profile.name}", "about:blank"]  # fmt: skip

        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(read_commands), str(write_replies), *line],
            pass_fds=(read_commands, write_replies),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_replies)
        self._buffer = b""
        self._number = 0
        self._watchdog = threading.Timer(REPLY_SECONDS, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.send("Page.enable")

    _session: str | None = None

    def send(self, method: str, **params: Any) -> Any:
        """One command; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next_message()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def _next_message(self) -> Any:
        while b"\0" not in self._buffer:
            part = os.read(self._replies, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def open(self, file: Path, *, width: int, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Show a file at a width, in dark or light."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.send("Page.navigate", url=file.resolve().as_uri())
        for _ in range(200):
            if self.run("document.readyState === 'complete' && location.protocol === 'file:'"):
                return
        raise RuntimeError(f"{file} did not load")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """The whole page as PNG."""
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True)["data"])

    def close(self) -> None:
        self._watchdog.cancel()
        with contextlib.suppress(OSError, RuntimeError):
            self._session = None
            self.send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._replies)
        self._profile.cleanup()
