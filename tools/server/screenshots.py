#!/usr/bin/python3
"""Takes the pictures of the web page that the docs show: screenshots.py PROGRAM [FOLDER].

Needs what ./run test installs. The server's folder of jobs is a new one, so that the gallery holds only what is drawn here.
"""

import argparse
import io
import pathlib
import sys
import tempfile

from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/page"))
from browser import Browser, Server  # noqa: E402

PROMPTS = ["a green star on a white background", "a yellow heart on a purple background", "a white circle on a black background",
           "a blue square on an orange background"]


def save(page, path):
    """A palette is enough for a page, and a quarter of the bytes."""
    picture = Image.open(io.BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KB")


def pictures(page, count):
    page.until(lambda: page.pictures() >= count)


def take(page, server, folder, everything):
    page.set_dark(False, still=True)
    page.open(server.url)
    if everything:
        save(page, folder / "empty.png")
    for number, prompt in enumerate(PROMPTS):
        server.post("/jobs", {"prompt": prompt, "seed": 40 + number})
    pictures(page, len(PROMPTS))
    page.draw("a red circle on a blue background", steps=100, seed=3)
    page.run("document.getElementById('advanced').open = false; document.activeElement.blur(); scrollTo(0, 0)")
    page.until(lambda: page.run("return Number(document.getElementById('bar').ariaValueNow)") >= 45)
    page.until(lambda: not page.hidden("#stage-badge"))
    save(page, folder / "server_page.png")
    pictures(page, len(PROMPTS) + 1)

    page.click(".card [aria-label^='Use as input']")
    page.until(lambda: page.all(".input img"))
    if everything:
        page.run("scrollTo(0, 0)")
        page.run("document.querySelector('.composer').scrollTo(0, 0)")
        save(page, folder / "input.png")
    page.choose("[name=mode][value=begin]")
    page.click("#mask-open")
    page.until(lambda: page.get("#mask").get_property("open"))
    canvas = page.get("#mask-canvas")
    page.run("const s = document.getElementById('mask-size'); s.value = 55; s.dispatchEvent(new Event('input'))")
    width = canvas.size["width"]
    stroke = ActionChains(page.driver, duration=80).move_to_element_with_offset(canvas, -width // 5, -width // 8).click_and_hold()
    for right, down in ((2, 1), (2, -1), (1, 2), (-2, 1), (-2, 1)):
        stroke.move_by_offset(right * width // 12, down * width // 14)
    stroke.release().perform()
    save(page, folder / "server_mask.png")
    page.click("#mask-done")
    page.run("for (const t of document.querySelectorAll('.toast')) t.remove()")

    page.set_dark(True, still=True)
    if everything:
        page.run("scrollTo(0, 0)")
        save(page, folder / "dark.png")
        page.click(".thumb")
        save(page, folder / "viewer.png")
        page.click("#viewer-close")
    page.resize(390, 844)
    if everything:
        page.run("scrollTo(0, 0)")
        save(page, folder / "narrow_top.png")
        page.click("#mask-open")
        save(page, folder / "narrow_mask.png")
        page.click("#mask-cancel")
        page.click(".thumb")
        save(page, folder / "narrow_viewer.png")
        page.click("#viewer-close")
    page.run("document.getElementById('stage').scrollIntoView()")
    save(page, folder / "server_narrow.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=ROOT / "docs/images")
    parser.add_argument("--all", action="store_true", help="also those that the docs do not show")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        server = Server(arguments.program, pathlib.Path(work, "jobs"))
        page = Browser(1280, 860)
        try:
            take(page, server, arguments.folder, arguments.all)
        finally:
            page.close()
            server.stop()


if __name__ == "__main__":
    main()
