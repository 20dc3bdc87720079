"""A real browser for tests: Debian's chromium, without a window, controlled through a pair of pipes.

Its protocol is JSON with a NUL after each message, so that nothing but Python and the browser is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PATIENCE = 300
"""Seconds for an answer."""


def chromium() -> str | None:
    """The program, where there is one."""
    return shutil.which("chromium")


class Browser:
    """One browser with one page. A context manager.

    Attributes
    ----------
    requests:
        The requested addresses since `open`: the page's own first.
    refused:
        Those that the page's security policy stopped, before anything was asked.
    complaints:
        What the console, the page's scripts and its security policy complained of.
    """

    def __init__(self, folder: Path) -> None:
        program = chromium()
        assert program is not None
        from_us, to_us = os.pipe(), os.pipe()
        for descriptor in (from_us[0], to_us[1]):
            os.set_inheritable(descriptor, True)
        # The browser reads from 3 and writes to 4.
        script = f'exec "$@" 3<&{from_us[0]} 4>&{to_us[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(from_us[0], to_us[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us[0])
        os.close(to_us[1])
        self._write, self._read = from_us[1], to_us[0]
        self._rest, self._number = b"", 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.refused: list[str] = []
        self.complaints: list[str] = []
        self._addresses, self._told = dict[str, str](), list[dict[str, Any]]()
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a DevTools command and return its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return self._wait(lambda message: message.get("id") == number, method)

    def _wait(self, wanted: Callable[[dict[str, Any]], bool], action: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while True:
            while b"\0" in self._rest:
                text, _, self._rest = self._rest.partition(b"\0")
                message = json.loads(text)
                self._note(message)
                if wanted(message):
                    assert "error" not in message, f"{action}: {message['error']}"
                    result: dict[str, Any] = message.get("result", message)
                    return result
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no answer to {action} in {PATIENCE} s"
            got = os.read(self._read, 1 << 20)
            assert got, f"the browser ended at {action}"
            self._rest += got

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if str(method).startswith("Browser."):
            self._told.append(message)
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
            self._addresses[parameters["requestId"]] = parameters["request"]["url"]
        elif method == "Network.loadingFailed" and parameters.get("blockedReason") == "csp":
            self.refused.append(self._addresses[parameters["requestId"]])
        elif method == "Runtime.consoleAPICalled":
            values = [str(argument.get("value", argument.get("description"))) for argument in parameters["args"]]
            self.complaints.append(f"{parameters['type']}: {' '.join(values)}")
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")

    def open(self, path: Path) -> None:
        """Open a file, and wait until it says that its charts are drawn."""
        self.requests, self.refused, self.complaints = [], [], []
        self.call("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete' && document.documentElement.dataset.charts === 'drawn'")

    def until(self, condition: str) -> None:
        """Wait until an expression of the page is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(condition):
            assert time.monotonic() < end, f"{condition} is not true after {PATIENCE} s: {self.complaints}"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """Value of an expression of the page, with the rights of a user action."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path: Path, width: int = 1100) -> None:
        """Write a picture of the whole page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        content = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": width, "height": min(content["height"], 12000), "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def saved(self, link: str, folder: Path) -> Path:
        """The file that a link saves into a folder: it is clicked as by hand, and waited for."""
        session, self._session = self._session, None
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=True)
        self._session = session
        self._told.clear()
        time.sleep(0.2)  # of more than ten in a second, a browser saves no more
        self.value(f"{link}.scrollIntoView({{block: 'center'}})")
        at = self.value(f"(at => [at.x + at.width / 2, at.y + at.height / 2])({link}.getBoundingClientRect())")
        mouse = {"x": at[0], "y": at[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        self.until(f"/^(data|blob):/.test({link}.href)")  # it is drawn while the button is down
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        name = self._event("Browser.downloadWillBegin", lambda event: True)["suggestedFilename"]
        self._event("Browser.downloadProgress", lambda event: event["state"] == "completed")
        return folder / str(name)

    def _event(self, method: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Message of an event, since `_told` was cleared or later."""

        def is_it(message: dict[str, Any]) -> bool:
            return message.get("method") == method and wanted(message["params"])

        event = next(filter(is_it, self._told), None) or self._wait(is_it, method)
        parameters: dict[str, Any] = event["params"]
        return parameters

    def pdf(self, path: Path) -> None:
        """Print the page."""
        answer = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))
