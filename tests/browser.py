"""Chromium without a window, spoken to through two pipes in its DevTools protocol: pages, keys, and what it prints."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from select import select
from typing import Any

import pytest

# The protocol reads file descriptor 3 and writes 4. Both are copied out of the way first: one may be 3 or 4 itself.
LAUNCH = """
import os, sys
ends = [os.dup(os.dup(os.dup(int(end)))) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


# Of every element with visible text of its own: its tag, its colour, and the colour behind it.
COLOURS_OF_TEXT = """
[...document.querySelectorAll("body *")]
  .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
  .filter((each) => each.tagName !== "style" && each.checkVisibility())
  .map((each) => {
    const style = getComputedStyle(each), clear = "rgba(0, 0, 0, 0)";
    let behind = each;
    while (behind.parentElement && getComputedStyle(behind).backgroundColor === clear) behind = behind.parentElement;
    const ground = getComputedStyle(behind).backgroundColor;
    return [each.tagName, each instanceof SVGElement ? style.fill : style.color,
            ground === clear ? getComputedStyle(document.body).backgroundColor : ground];
  })
"""


def contrast(colour: str, other: str) -> float:
    """The ratio of the luminances of two colours, as WCAG 2 defines it."""

    def luminance(text: str) -> float:
        parts = [int(each) / 255 for each in re.findall(r"\d+", text)[:3]]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def chromium() -> str:
    """The browser's path; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or pytest.skip("not run: no chromium")


class Browser:
    """One page. `complaints` are the errors and warnings of its console, and what its policy refused."""

    def __init__(self, profile: Path, width: int = 1100, height: int = 1000) -> None:
        to_it, self.out = os.pipe()
        self.back, from_it = os.pipe()
        words = [chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]  # fmt: skip
        start = [sys.executable, "-c", LAUNCH, str(to_it), str(from_it), *words]
        self.process = subprocess.Popen(start, pass_fds=(to_it, from_it), stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        self.count, self.buffer, self.complaints = 0, b"", []
        page = next(
            each for each in self.call("Target.getTargets", session=None)["targetInfos"] if each["type"] == "page"
        )
        attach = {"targetId": page["targetId"], "flatten": True}
        self.session = self.call("Target.attachToTarget", session=None, **attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.back)

    def call(self, method: str, session: str | None = "page", **params: Any) -> Any:
        """The answer to one message; events on the way are looked at."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> Any:
        while b"\0" not in self.buffer:
            assert select([self.back], [], [], 60)[0], "the browser is silent"
            read = os.read(self.back, 1 << 20)
            assert read, "the browser has ended"
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        event = json.loads(message)
        name, about = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"]["exception"].get("description"))
        elif name == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(about["args"]))
        return event

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the page in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, name: str, media: str = "screen") -> None:
        """Prefers "light" or "dark", on a screen or in print."""
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, address: str) -> None:
        """Goes to an address."""
        self.call("Page.navigate", url=address)

    def ask(self, expression: str) -> Any:
        """The value of an expression of the page's script."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < end, f"not in {seconds} s: {expression}; {self.complaints}"
            time.sleep(0.05)

    def press(self, key: str, text: str = "") -> None:
        """Presses and releases a key."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "Home": 36, "ArrowRight": 39}[key]
        pressed = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Writes the whole page as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))
