"""Takes the picture of the README: the top of the report of the demo's release, in a headless browser.

PYTHONPATH=tests/report python tests/docs/picture.py
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

import sqlanon
from sqlanon.demo import run_demo

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.browser import Browser

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "assets" / "report.png"
WIDTH, HEIGHT = 1100, 1000

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        page = Path(home) / "report.html"
        demo = run_demo(Path(home) / "demo", 100_000)
        with sqlanon.connect() as db:
            db.report(str(demo.release), page)
        with Browser(Path(home)) as browser:
            browser.scheme("light")
            browser.open(page)
            browser.call("Emulation.setScrollbarsHidden", hidden=True)
            browser.call(
                "Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False
            )
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 0.8}
            screenshot = browser.call("Page.captureScreenshot", format="png", clip=clip)
    PICTURE.write_bytes(base64.b64decode(screenshot["data"]))
