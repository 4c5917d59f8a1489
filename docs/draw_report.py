"""Draw docs/images/report.png, README's picture: the first view of the demo's report in headless Chromium.

    python docs/draw_report.py

It runs `shardplan demo`, so the picture is of the real report. Chromium (`apt install chromium`) is needed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).resolve().parent / "images" / "report.png"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1200, 560


def main() -> None:
    """Make the report, open it, take the picture."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        sys.exit(f"no Chromium found (got none of {', '.join(NAMES)}; wanted one of them)")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "api", "demo", "-o", report], check=True, stdout=subprocess.DEVNULL)
        take_picture(browser, report)


def take_picture(browser: str, page: Path) -> None:
    """The top of a page, as PICTURE."""
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]
    size = f"--window-size={WIDTH},{HEIGHT}"
    subprocess.run([browser, *words, size, f"--screenshot={PICTURE}", page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
