"""How soon the page is there, in a real browser with an empty cache.

    python -m bench.page --rounds 9 --browser chromium

Starts ``chatsrv serve`` with the demo model and opens the page in a new profile each round. Prints one JSON line: the
medians until something is painted and until a question can be sent, and the longest first paint.
"""

from __future__ import annotations

import argparse
import json
import shutil
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from bench.machine import describe
from bench.own_server import OwnServer

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def open_once(browser: Browser, address: str) -> tuple[float, float]:
    """Milliseconds until the first paint, and until the model's name shows that a question would be answered."""
    page = browser.new_page()
    page.goto(address)
    page.get_by_placeholder("smollm2").wait_for()
    ready_ms = page.evaluate("performance.now()")
    paint_ms = page.evaluate(FIRST_PAINT)
    page.close()
    return paint_ms, ready_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--browser", default="chromium", help="a Chromium, by name or path")
    arguments = parser.parse_args()
    program = shutil.which(arguments.browser)
    if program is None:
        parser.error(f"no program {arguments.browser} is here")
    print(f"on {describe()}", flush=True)
    with OwnServer() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        times = [open_once(browser, server.base.removesuffix("/v1")) for _ in range(arguments.rounds)]
        browser.close()
    paints, readies = zip(*times, strict=True)
    line = {"first_paint_ms": median(paints), "ready_ms": median(readies), "longest_first_paint_ms": max(paints)}
    print(json.dumps({name: round(value) for name, value in line.items()}))


if __name__ == "__main__":
    main()
