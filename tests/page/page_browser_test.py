"""The web page in a real browser, against the real server with the embedded model.

page_browser_test.py PROGRAM [unittest's arguments]
"""

import base64
import io
import json
import pathlib
import sys
import tempfile
import unittest

from browser import ROOT, Browser, Server
from PIL import Image, ImageChops
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else None
CIRCLE = ROOT / "docs/images/circle.png"
# A job that does not end by itself while a test looks at it.
LONG = {"width": 1024, "height": 1024, "steps": 200}  # a minute and more, on any machine
WORK = tempfile.TemporaryDirectory()


def setUpModule():
    global page, server
    server = Server(PROGRAM, pathlib.Path(WORK.name, "jobs"), "--queue", "2")
    try:
        page = Browser()
    except Exception:
        server.stop()
        raise


def tearDownModule():
    page.close()
    server.stop()
    WORK.cleanup()


class PageTest(unittest.TestCase):
    # What the console may say: the browser itself reports replies that are errors.
    expected_console = ()

    def setUp(self):
        server.clear()
        page.resize(1280, 900)
        page.set_dark(False)
        page.console()
        page.requests()
        page.open(server.url)

    def tearDown(self):
        for entry in page.console():
            self.assertTrue(any(words in entry["message"] for words in self.expected_console), entry)
        for url in page.requests():
            self.assertTrue(url.startswith((server.url + "/", "data:", "blob:" + server.url)), url)

    def picture(self, job, index=0):
        return Image.open(io.BytesIO(server.get(job["images"][index]["url"]))).convert("RGB")

    def wait_done(self, count=1):
        page.until(lambda: len(page.all(".card[data-state=done]")) == count, f"no {count} finished drawings")
        return [job for job in server.jobs() if job["state"] == "done"]

    def wait_step(self):
        page.until(lambda: "tep " in page.text("#stage-title"), "no step was seen")

    def upload(self, *paths):
        page.get("#files").send_keys("\n".join(map(str, paths)))
        page.until(lambda: len(page.all(".input img")) == len(paths))


class Drawing(PageTest):
    def test_from_prompt_to_picture(self):
        page.draw("a red circle on a blue background", steps=4, seed=7)
        page.until(lambda: page.pictures() == 1, "the picture is not in the gallery")
        [job] = self.wait_done()
        self.assertEqual((job["seed"], job["steps"], job["n"]), (7, 4, 1))
        self.assertIn("seed 7", page.text(".card-meta"))
        self.assertEqual(page.text(".card-prompt"), "a red circle on a blue background")
        self.assertIn("Done in", page.text("#stage-title"))
        page.until(lambda: page.run("return document.querySelector('#stage-images img').naturalWidth") == 128)

    def test_progress_and_cancel(self):
        page.draw("a yellow star", **LONG)
        self.wait_step()
        self.assertRegex(page.text("#stage-title"), r"^Step \d+ of 200$")
        page.until(lambda: " per step · " in page.text("#stage-detail"))
        self.assertRegex(page.text("#stage-detail"), r"^[\d.]+ (ms|s) per step · .* left$")
        page.until(lambda: not page.hidden("#stage-badge"), "no preview came")
        page.until(lambda: page.run("return document.querySelector('#stage-images img').naturalWidth") > 0)
        preview = page.get("#stage-images img").get_property("src")
        page.until(lambda: page.get("#stage-images img").get_property("src") != preview, "the preview stays as it was")
        self.assertRegex(page.driver.title, r"^\d+ % · ")
        page.click("#cancel")
        page.until(lambda: page.text("#stage-title") == "Cancelled")
        self.assertEqual([job["state"] for job in server.jobs()], ["cancelled"])
        self.assertEqual(page.driver.title, "Qwen-Image")
        # Nothing of it is left to keep: it is not in the gallery, and can be put away.
        self.assertEqual(page.all(".card"), [])
        self.assertFalse(page.hidden("#gallery-empty"))
        page.click("#stage-actions button:last-child")
        page.until(lambda: not page.hidden("#stage-empty"))
        self.assertEqual(page.run("return document.activeElement.id"), "stage")
        page.until(lambda: not server.jobs(), "the server still has it")

    def test_reload_during_a_job_finds_it_again(self):
        page.draw("a yellow star", **LONG)
        self.wait_step()
        page.driver.refresh()
        self.wait_step()
        page.until(lambda: not page.hidden("#stage-badge"), "no preview after the reload")
        self.assertEqual(page.get("#prompt").get_property("value"), "a yellow star")
        page.click("#cancel")
        page.until(lambda: page.text("#stage-title") == "Cancelled")

    def test_what_was_done_before_a_cancel_is_kept(self):
        page.draw("a red circle", steps=4, count=10, width=768, height=768)
        page.until(lambda: any(job["images"] for job in server.jobs()))
        page.click("#cancel")
        page.until(lambda: page.text("#stage-title") == "Cancelled")
        [job] = server.jobs()
        self.assertLess(len(job["images"]), 10)
        page.until(lambda: page.pictures() == min(4, len(job["images"])))

    def test_several_pictures(self):
        page.draw("a red circle on a blue background", steps=2, seed=18446744073709551614, count=2)
        page.until(lambda: page.pictures() == 2)
        [job] = self.wait_done()
        self.assertEqual([image["seed"] for image in job["images"]], [18446744073709551614, 18446744073709551615])
        page.click(".thumb")
        page.until(lambda: page.text("#viewer-title") == "Picture 1 of 2")
        page.get("#viewer").send_keys(Keys.ARROW_RIGHT)
        page.until(lambda: page.text("#viewer-title") == "Picture 2 of 2")
        self.assertIn("18446744073709551615", page.text("#viewer-settings"))  # more than a JavaScript number holds

    def test_draw_again_gives_the_same_picture(self):
        page.draw("a green star on a white background", steps=3, cfg=2.5, width=160, height=96, negative="a red circle")
        [first] = self.wait_done()
        self.assertEqual(first["negative_prompt"], "a red circle")
        page.open(server.url)
        page.until(lambda: page.all(".card"))
        page.click(".card [aria-label^='Draw again']")
        page.until(lambda: page.get("#seed").get_property("value") == str(first["seed"]))
        page.click("#draw")
        second, _ = self.wait_done(2)
        self.assertEqual(self.picture(second).tobytes(), self.picture(first).tobytes())

    def test_download_and_delete_with_undo(self):
        page.draw("a red circle", steps=1)
        [job] = self.wait_done()
        page.until(lambda: page.pictures() == 1)
        # The link leads to the whole file, and the browser is told to keep it.
        folder = pathlib.Path(WORK.name, "downloads")
        page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
        page.click(".card [aria-label^=Download]")
        picture = server.get(job["images"][0]["url"])
        page.until(lambda: [file.read_bytes() for file in folder.glob("*.png")] == [picture], "no whole file came")
        page.click(".card [aria-label^=Delete]")
        page.until(lambda: not page.all(".card"))
        page.click(".toast button")
        page.until(lambda: page.pictures() == 1)
        page.click(".card [aria-label^=Delete]")
        page.until(lambda: not server.jobs(), "the server still has it")
        page.until(lambda: page.text("#stage-empty") and not page.hidden("#stage-empty"))


class Pictures(PageTest):
    def test_edit_an_uploaded_picture(self):
        self.upload(CIRCLE)
        self.assertFalse(page.hidden("#picture-options"))
        page.draw("make the circle green", steps=4, seed=1)
        [job] = self.wait_done()
        self.assertEqual((job["input_images"], job["init_image"], job["mask"]), (1, False, False))
        self.assertNotEqual(self.picture(job).tobytes(), Image.open(CIRCLE).convert("RGB").tobytes())
        # Drawn again from this page, the picture is still there.
        page.click(".input-remove")
        page.until(lambda: not page.all(".input img"))
        page.click("#stage-actions button")
        page.until(lambda: page.all(".input img"))

    def test_begin_with_a_picture_of_the_gallery(self):
        page.draw("a red circle on a blue background", steps=3)
        page.until(lambda: page.pictures() == 1)
        page.click(".card [aria-label^='Use as input']")
        page.until(lambda: page.all(".input img"))
        page.choose("[name=mode][value=begin]")
        self.assertFalse(page.hidden("#strength"))
        page.draw("a yellow circle", steps=5)
        job, _ = self.wait_done(2)
        self.assertEqual((job["input_images"], job["init_image"], job["strength"]), (0, True, 0.6))

    def test_extend_a_picture(self):
        self.upload(CIRCLE)
        page.click("#extend-row summary")
        page.fill("#extend-left", "32")
        page.fill("#extend-bottom", "16")
        page.draw("a red circle on a blue background", steps=3)
        [job] = self.wait_done()
        before, after = Image.open(CIRCLE).convert("RGB"), self.picture(job)
        self.assertEqual(after.size, (before.width + 32, before.height + 16))

    def check_mask(self, paint):
        """The painted band around the middle changes, all else stays as it was, bit by bit."""
        self.upload(CIRCLE)
        page.choose("[name=mode][value=begin]")
        page.click("#mask-open")
        page.until(lambda: page.get("#mask").get_property("open"))
        paint(page.get("#mask-canvas"))
        page.click("#mask-done")
        page.until(lambda: page.text("#mask-open-text") == "Change the mask")
        page.draw("a green star on a white background", steps=5, seed=3)
        [job] = self.wait_done()
        self.assertTrue(job["mask"])
        before, after = Image.open(CIRCLE).convert("RGB"), self.picture(job)
        self.assertEqual(before.size, after.size)
        left, top, right, bottom = ImageChops.difference(before, after).getbbox()
        self.assertGreater(right - left, 40)
        return left, top, right, bottom

    def test_mask_brush(self):
        def paint(canvas):
            width = canvas.size["width"]
            actions = ActionChains(page.driver, duration=50)
            actions.move_to_element_with_offset(canvas, -width // 4, 0).click_and_hold()
            actions.move_by_offset(width // 4, 0).move_by_offset(width // 4, 0).release()
            # a stroke that is undone, and one that is erased
            actions.move_to_element_with_offset(canvas, 0, -width // 3).click().perform()
            page.click("#mask-undo")
            ActionChains(page.driver).move_to_element_with_offset(canvas, 0, width // 3).click().perform()
            page.choose("[name=tool][value=erase]")
            ActionChains(page.driver).move_to_element_with_offset(canvas, 0, width // 3).click().perform()
        left, top, right, bottom = self.check_mask(paint)
        # The brush is about 5 % of the side wide, the stroke half of it long.
        self.assertTrue(24 <= left and right <= 104 and 54 <= top and bottom <= 74, (left, top, right, bottom))
        # A job that is drawn again has the mask that it was drawn with.
        page.click("#mask-remove")
        page.click(".card [aria-label^='Draw again']")
        page.until(lambda: page.text("#mask-open-text") == "Change the mask")
        page.click("#draw")
        second, first = self.wait_done(2)
        self.assertEqual(self.picture(second).tobytes(), self.picture(first).tobytes())

    def test_mask_brush_by_keyboard(self):
        def paint(canvas):
            actions = ActionChains(page.driver).key_down(Keys.SPACE)
            for _ in range(16):
                actions.send_keys(Keys.ARROW_RIGHT)
            actions.key_up(Keys.SPACE).perform()
        left, top, right, bottom = self.check_mask(paint)
        self.assertTrue(58 <= left and 54 <= top and bottom <= 74, (left, top, right, bottom))

    def test_what_is_no_picture_is_named(self):
        path = pathlib.Path(WORK.name, "notes.png")
        path.write_text("no picture")
        page.get("#files").send_keys(str(path))
        page.until(lambda: "notes.png is not a picture" in page.text("#message"))
        self.assertEqual(page.all(".input"), [])


class Transparency(PageTest):
    """Pictures with alpha, and what models that draw them have."""

    expected_console = ("Failed to load resource",)

    def checkered(self, selector):
        return page.run("return getComputedStyle(document.querySelector(arguments[0])).backgroundImage.includes('conic-gradient')", selector)

    def keep_job(self, folder, number, image):
        """As the server would have stored it."""
        name = f"{number:032x}"
        image.save(folder / f"{name}-0.png")
        picture = {"width": image.width, "height": image.height, "seed": number}
        job = {"id": name, "state": "done", "created": number, "started": number, "finished": number + 100, "prompt": f"ghost {number}",
               "negative_prompt": " ", "width": image.width, "height": image.height, "steps": 3, "count": 1, "cfg": 1.0, "seed": number,
               "input_images": 0, "has_init_image": False, "has_mask": False, "notes": [], "error": "",
               "images": [{**picture, "alpha": True} if image.mode == "RGBA" else picture]}
        (folder / f"{name}.json").write_text(json.dumps(job))

    def test_a_checkerboard_shows_through(self):
        """Two pictures are put where the server keeps its own: one with alpha, one without."""
        folder = pathlib.Path(WORK.name, "ghosts")
        folder.mkdir()
        ghost = Image.linear_gradient("L").resize((96, 64))
        self.keep_job(folder, 1, Image.open(CIRCLE).convert("RGB"))
        self.keep_job(folder, 2, Image.merge("RGBA", (ghost, ghost, ghost.transpose(Image.Transpose.ROTATE_180), ghost)))
        picture = next(folder.glob("*2-0.png")).read_bytes()
        other = Server(PROGRAM, folder)
        try:
            page.open(other.url)
            page.until(lambda: page.pictures() == 2)
            self.assertTrue(self.checkered(".card:first-child .thumb img"))
            self.assertFalse(self.checkered(".card:last-child .thumb img"))
            page.until(lambda: page.run("return document.querySelector('#stage-images img').naturalWidth") == 96)
            self.assertTrue(self.checkered("#stage-images img"))
            page.click(".card:first-child .thumb")
            page.until(lambda: page.run("return document.querySelector('#viewer-image').naturalWidth") == 96)
            self.assertTrue(self.checkered("#viewer-image"))
            page.click("#viewer-next")
            page.until(lambda: page.run("return document.querySelector('#viewer-image').naturalWidth") == 128)
            self.assertFalse(self.checkered("#viewer-image"))
            page.click("#viewer-close")
            # What is downloaded, or used again, is the file with its alpha.
            downloads = pathlib.Path(WORK.name, "ghosts-downloaded")
            page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
            page.click(".card:first-child [aria-label^=Download]")
            page.until(lambda: [file.read_bytes() for file in downloads.glob("*.png")] == [picture], "no whole file came")
            page.click(".card:first-child [aria-label^='Use as input']")
            page.until(lambda: page.all(".input img"))
            self.assertEqual(base64.b64decode(page.get(".input img").get_attribute("src").partition(",")[2]), picture)
            self.assertTrue(self.checkered(".input img"))
        finally:
            other.stop()
            page.open(server.url)
            page.console()
            page.requests()

    def test_a_model_with_alpha(self):
        """A small random Qwen-Image-2.1: noise, half transparent."""
        self.assertTrue(page.hidden("#background-row"))  # not for the embedded model
        other = Server(PROGRAM, pathlib.Path(WORK.name, "alpha"), model=ROOT / "tests/goldens/models/21-micro")
        try:
            page.open(other.url)
            page.until(lambda: not page.hidden("#background-row"))
            self.assertTrue(page.hidden("#background-colour"))
            # Sides are multiples of what the server says.
            page.choose("[name=shape][value=custom]")
            self.assertIn("Multiples of 32", page.text("#size-hint"))
            page.fill("#width", f"48{Keys.TAB}")
            page.until(lambda: page.get("#width").get_property("value") == "64")
            page.fill("#height", f"32{Keys.TAB}")
            page.draw("a ghost", steps=2, seed=3)
            page.until(lambda: page.pictures() == 1)
            self.assertTrue(self.checkered(".thumb img"))
            [clear] = other.jobs()
            picture = Image.open(io.BytesIO(other.get(clear["images"][0]["url"])))
            self.assertEqual((picture.mode, picture.size), ("RGBA", (64, 32)))
            page.choose("[name=background][value=other]")
            self.assertFalse(page.hidden("#background-colour"))
            page.click("#draw")
            page.until(lambda: "which colour" in page.text("#message"))
            page.fill("#background-colour", "pinkish")
            page.click("#draw")
            page.until(lambda: '"pinkish" is not a background' in page.text("#message"))
            self.assertEqual(page.run("return document.activeElement.id"), "background-colour")
            page.choose("[name=background][value=black]")
            page.until(lambda: page.hidden("#message"), "what is mended is still complained of")
            page.click("#draw")
            page.until(lambda: page.pictures() == 2)
            self.assertFalse(self.checkered(".card:first-child .thumb img"))
            [flat] = [job for job in other.jobs() if job["background"] == "black"]
            on_black = Image.new("RGB", picture.size)
            on_black.paste(picture, mask=picture.getchannel("A"))
            drawn = Image.open(io.BytesIO(other.get(flat["images"][0]["url"])))
            self.assertEqual((drawn.mode, drawn.tobytes()), ("RGB", on_black.tobytes()))
            # The settings of a drawing, with its background, come back.
            page.choose("[name=background][value='']")
            page.click(".card:first-child [aria-label^='Draw again']")
            page.until(lambda: page.get("[name=background][value=black]").is_selected())
            page.click(".card:last-child [aria-label^='Draw again']")
            page.until(lambda: page.get("[name=background][value='']").is_selected())
        finally:
            other.stop()
            page.open(server.url)
            page.console()
            page.requests()

    def test_noise_levels(self):
        page.draw("a red circle", sigmas="1, 0.6 0.2", seed=7)
        [job] = self.wait_done()
        self.assertEqual((job["sigmas"], job["steps"]), ([1, 0.6, 0.2], 3))
        self.assertIn("3 steps", page.text("#advanced-value"))
        page.click("#reset")
        self.assertIn("20 steps", page.text("#advanced-value"))
        page.click(".card [aria-label^='Draw again']")
        page.until(lambda: page.get("#sigmas").get_property("value") == "1, 0.6, 0.2")
        page.click("#draw")
        second, first = self.wait_done(2)
        self.assertEqual(self.picture(second).tobytes(), self.picture(first).tobytes())
        page.draw("a red circle", sigmas="1, many")
        page.until(lambda: "Noise levels are numbers" in page.text("#message"))
        page.draw("a red circle", sigmas="0.5, 1")
        page.until(lambda: "the sigmas are not valid" in page.text("#message"))
        self.assertEqual(page.run("return document.activeElement.id"), "sigmas")


class Trouble(PageTest):
    expected_console = ("Failed to load resource", "net::ERR_")

    def test_queue_full(self):
        for _ in range(3):  # one runs, two wait
            server.post("/jobs", {"prompt": "a star", **LONG})
            page.until(lambda: any(job["state"] == "running" for job in server.jobs()))
        page.draw("one too many", steps=1)
        page.until(lambda: "The server is busy" in page.text("#message"))
        self.assertRegex(page.text("#message"), r"Try again in about \d+ seconds?; your settings stay here\.")
        page.until(lambda: len(page.all(".queue-item")) == 2)
        page.until(lambda: "Number 2 in the queue" in page.text("#queue"))
        # A place is free: it is taken.
        page.get(".queue-item button").click()
        page.until(lambda: len(page.all(".queue-item")) == 1)
        page.until(lambda: page.hidden("#message"), "it still says that the server is busy")
        self.assertIn("room in the queue", page.text("#toasts"))
        page.click("#draw")
        page.until(lambda: len(page.all(".queue-item")) == 2)
        self.assertTrue(page.hidden("#message"))

    def test_server_gone_and_back(self):
        page.draw("a star", **LONG)
        self.wait_step()
        page.run("document.querySelector('.results').style.minHeight = '3000px'; scrollTo(0, 3000)")
        server.kill()
        try:
            page.until(lambda: "The server does not answer" in page.text("#banner-text"))
            self.assertEqual(page.text("#link-text"), "No connection")
            self.assertTrue(page.in_view("#banner"))
            page.run("scrollTo(0, 200)")
            page.until(lambda: page.run("return scrollY") == 200)
            self.assertTrue(page.in_view("#banner"))
            page.until(lambda: page.run("""const bottom = document.getElementById('banner').getBoundingClientRect().bottom;
                return bottom < document.getElementById('form').getBoundingClientRect().top"""), "the banner lies on the form")
            page.click("#cancel")
            page.until(lambda: "The server does not answer" in page.text("#toasts"))
            page.click("#draw")
            page.until(lambda: "nothing was sent" in page.text("#message"))
        finally:
            server.start()
        page.until(lambda: page.text("#link-text") == "Connected")
        self.assertTrue(page.hidden("#banner"))
        self.assertTrue(page.hidden("#message"))
        self.assertNotIn("does not answer", page.text("#toasts"))
        page.until(lambda: page.text("#stage-title") == "Interrupted")
        self.assertEqual(page.get("#prompt").get_property("value"), "a star")

    def bad_fields(self):
        return page.run("return [...document.querySelectorAll('[aria-invalid]')].map((node) => node.id || node.name)")

    def check_refused(self, request, field):
        """What the server says stands whole at the Draw button; the field that it names is marked, and has the focus."""
        error = server.refusal("/jobs", {"prompt": "a star", **request})
        page.until(lambda: page.text("#message") == error["message"])
        self.assertTrue(page.in_view("#message"))
        self.assertFalse(page.cut("#message"))
        self.assertEqual(page.get("#message").get_attribute("role"), "alert")
        self.assertEqual(self.bad_fields(), [field] if error["param"] else [])
        if error["param"]:
            self.assertEqual(page.run("return getComputedStyle(document.activeElement).borderTopColor"),
                             page.run("return getComputedStyle(document.getElementById('message')).color"))
            self.assertEqual(page.run("return document.activeElement.id || document.activeElement.name"), field)
            self.assertTrue(page.in_view(":focus"))
        self.assertEqual(server.jobs(), [])
        return error

    def test_what_the_server_refuses_is_said_at_the_field(self):
        for width in (1280, 360):
            page.resize(width, 740)
            page.open(server.url)
            page.draw("a star", steps=100000)
            self.assertTrue(self.check_refused({"steps": 100000}, "steps")["param"])
            page.draw("a star", steps=2, count=100)
            self.assertTrue(self.check_refused({"n": 100}, "count")["param"])
            # Whether the reply names the field or not.
            page.draw("a star", count=1, cfg=5000)
            self.check_refused({"cfg": 5000}, "cfg")
            page.draw("a star", cfg=4, width=8208, height=16)
            self.check_refused({"width": 8208, "height": 16}, "width")
            # What is mended is not complained of any more.
            page.fill("#width", f"512{Keys.TAB}")
            page.until(lambda: page.hidden("#message"))
            self.assertEqual(self.bad_fields(), [])

    def test_what_the_form_refuses_is_said_at_the_field(self):
        page.draw("", cfg=1)
        page.until(lambda: "Write what you want" in page.text("#message"))
        self.assertEqual(self.bad_fields(), ["prompt"])
        page.draw("a star", cfg=-1)
        page.until(lambda: "guidance" in page.text("#message"))
        self.assertEqual(self.bad_fields(), ["cfg"])
        self.assertEqual(page.run("return document.activeElement.id"), "cfg")
        page.draw("a star", cfg=1, steps=2.5)
        page.until(lambda: "whole number" in page.text("#message"))
        self.assertEqual(self.bad_fields(), ["steps"])
        page.click("#reset")
        self.assertTrue(page.hidden("#message"))
        self.assertEqual(self.bad_fields(), [])
        self.assertEqual(server.jobs(), [])

    def test_failed_jobs_say_why_and_can_be_dismissed(self):
        first = server.post("/jobs", {"prompt": "a star", **LONG})
        server.post("/jobs", {"prompt": "a heart", "steps": 1})
        folder, away = pathlib.Path(WORK.name, "jobs"), pathlib.Path(WORK.name, "away")
        folder.rename(away)  # nothing can be written any more
        try:
            server.delete("/jobs/" + first["id"])
            page.until(lambda: page.all(".card[data-state=failed]"))
        finally:
            away.rename(folder)
        [error] = [job["error"] for job in server.jobs() if job["state"] == "failed"]
        self.assertEqual(len(page.all(".card")), 1)  # the cancelled one is not there
        self.assertEqual(page.text(".card .thumb-error"), error)
        self.assertFalse(page.cut(".card .thumb-error"))
        page.click(".card [aria-label^='Dismiss: a heart']")
        page.until(lambda: not page.all(".card"))
        page.until(lambda: not any(job["state"] == "failed" for job in server.jobs()), "the server still has it")

    def test_hostile_words_are_text(self):
        hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
        job = server.post("/jobs", {"prompt": hostile, "negative_prompt": hostile, "steps": 2})
        page.until(lambda: page.pictures() == 1)
        self.assertEqual(page.text(".card-prompt"), hostile)
        self.assertEqual(page.text("#stage-prompt"), hostile)
        page.click(".thumb")
        page.until(lambda: page.text("#viewer-prompt") == hostile)
        self.assertIn(hostile, page.text("#viewer-settings"))
        self.assertEqual(page.run("return document.querySelectorAll('[onerror], main script, dialog script').length"), 0)
        self.assertEqual(page.driver.title, "Qwen-Image")
        self.assertTrue(job["id"])
        page.click("#viewer-close")
        server.post("/jobs", {"prompt": "a star", **LONG})
        server.post("/jobs", {"prompt": hostile})
        page.until(lambda: page.text(".queue-prompt") == hostile)
        page.until(lambda: page.driver.title != "Qwen-Image")
        self.assertNotIn("owned", page.driver.title)


class Key(unittest.TestCase):
    def test_the_page_asks_for_the_key(self):
        locked = Server(PROGRAM, pathlib.Path(WORK.name, "locked"), "--api-key", "open-sesame")
        try:
            page.open(locked.url)
            page.until(lambda: page.get("#key").get_property("open"))
            page.get("#key-input").send_keys("wrong" + Keys.ENTER)
            page.until(lambda: "does not take this key" in page.text("#key-error"))
            page.get("#key-input").send_keys("open-sesame" + Keys.ENTER)
            page.until(lambda: page.text("#link-text") == "Connected")
            page.draw("a red circle", steps=2)
            page.until(lambda: page.pictures() == 1)
            self.assertTrue(page.get(".thumb img").get_attribute("src").startswith("blob:"))
            page.driver.refresh()
            page.until(lambda: page.pictures() == 1)
        finally:
            locked.stop()
            page.console()


class Everybody(PageTest):
    """Keyboards, readers of the screen, narrow and dark screens."""

    def tab_to(self, condition):
        seen = []
        for _ in range(60):
            ActionChains(page.driver).send_keys(Keys.TAB).perform()
            seen.append(page.run("return document.activeElement.id || document.activeElement.className"))
            if page.run(f"return document.activeElement.matches({condition!r})"):
                return
        self.fail(f"{condition} is not reached; seen: {seen}")

    def test_keyboard_alone(self):
        self.tab_to("#prompt")
        ActionChains(page.driver).send_keys("a red circle").key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
        page.until(lambda: page.pictures() == 1)
        for reached in ("#files", "[name=shape]", "#count-more", "#count", "#seed", "#seed-random", "#advanced summary",
                        "#draw", "#stage-actions button", ".card .thumb"):
            self.tab_to(reached)
        outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
        self.assertEqual(outline, "solid")
        ActionChains(page.driver).send_keys(Keys.ENTER).perform()
        page.until(lambda: page.get("#viewer").get_property("open"))
        self.tab_to("#viewer-actions button")
        ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
        page.until(lambda: not page.get("#viewer").get_property("open"))
        self.assertTrue(page.run("return document.activeElement.matches('.thumb')"))
        self.tab_to(".card [aria-label^=Delete]")
        ActionChains(page.driver).send_keys(Keys.ENTER).perform()
        page.until(lambda: not page.all(".card"))

    def everything_open(self):
        """Yields after each change of what is seen."""
        yield
        page.run("for (const d of document.querySelectorAll('details')) d.open = true")
        self.upload(CIRCLE, CIRCLE)
        yield
        page.click(".input-remove")
        page.choose("[name=shape][value=custom]")
        yield
        page.draw("a red circle", steps=2)
        page.until(lambda: page.pictures() == 1)
        page.click("#mask-open")
        yield
        page.click("#mask-cancel")
        page.click(".thumb")
        yield
        page.click("#viewer-close")

    def test_every_control_has_a_name(self):
        roles = {"button", "textbox", "spinbutton", "slider", "radio", "checkbox", "link", "application", "progressbar", "dialog", "img", "image"}
        counted = 0
        for _ in self.everything_open():
            for node in page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
                if node.get("ignored") or node.get("role", {}).get("value") not in roles:
                    continue
                counted += 1
                self.assertTrue(node.get("name", {}).get("value", "").strip(), node)
            # A placeholder is a name for Chromium, but it goes when one writes; and a label of nothing cannot be clicked.
            self.assertEqual(page.run("""return [...document.querySelectorAll('input, textarea')].filter((node) => !node.labels.length)
                .concat([...document.querySelectorAll('label')].filter((label) => !label.control)).map((node) => node.outerHTML)"""), [])
        self.assertGreater(counted, 100)

    def test_buttons_of_different_drawings_have_different_names(self):
        for seed in (1, 2):
            server.post("/jobs", {"prompt": "a red circle " * 20, "steps": 1, "seed": seed})
        self.wait_done(2)  # the server takes no more than two at a time
        server.post("/jobs", {"prompt": "a star", "steps": 1})
        self.wait_done(3)
        names = page.run("return [...document.querySelectorAll('.card button')].map((node) => node.ariaLabel)")
        self.assertEqual(len(names), 15)
        self.assertEqual(len(set(names)), 15, names)
        for name in names:
            self.assertRegex(name, "^[A-Z][a-z ]+: a (red circle|star)")
            self.assertLess(len(name), 100)

    def test_prompts_are_whole_and_run_in_their_direction(self):
        for text, direction in (("a red circle on a blue background, " * 8, "ltr"), ("دائرة حمراء على خلفية زرقاء " * 8, "rtl")):
            for width in (1280, 360):
                with self.subTest(direction=direction, width=width):
                    server.clear()
                    page.resize(width, 740)
                    page.open(server.url)
                    server.post("/jobs", {"prompt": text, "steps": 1})
                    self.wait_done()
                    for _ in range(2):
                        server.post("/jobs", {"prompt": text, **LONG})
                    page.until(lambda: page.all(".queue-prompt") and page.text("#stage-prompt"))
                    for place in ("#stage-prompt", ".queue-prompt"):
                        self.assertFalse(page.cut(place), place)
                    for place in ("#stage-prompt", ".queue-prompt", ".card-prompt"):
                        self.assertEqual(page.run("return getComputedStyle(document.querySelector(arguments[0])).direction", place), direction)

    def test_no_sideways_scrolling_on_narrow_screens(self):
        page.resize(360, 740)
        page.open(server.url)
        for _ in self.everything_open():
            for box in ("document.documentElement", *(["document.querySelector('dialog[open]')"] if page.all("dialog[open]") else [])):
                self.assertLessEqual(page.run(f"return {box}.scrollWidth - {box}.clientWidth"), 0, box)

    def test_text_stands_out_in_light_and_dark(self):
        for dark in (False, True):
            with self.subTest(dark=dark):
                server.clear()
                page.set_dark(dark)
                page.open(server.url)
                ground = page.run("return getComputedStyle(document.body).backgroundColor")
                self.assertEqual(sum(map(int, ground[4:-1].split(","))) < 200, dark)
                for _ in self.everything_open():
                    faint = page.run(CONTRAST)
                    self.assertEqual(faint, [])

    def test_nothing_jumps(self):
        page.run("""window.shifts = [];
            new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.shifts.push({value: entry.value,
                nodes: entry.sources.map(({node}) => node?.id || node?.className || node?.nodeName)}); })
                .observe({type: "layout-shift", buffered: true});""")
        # The foot goes down when the gallery grows, and the buttons of the stage are others when a picture is done.
        free = {"foot", "stage-actions"}

        def shifts():
            return [s for s in page.run("return window.shifts") if s["value"] > 0.005 and not free.issuperset(s["nodes"])]

        self.assertEqual(shifts(), [], "while the page opened")
        page.run("document.getElementById('advanced').open = true; requestAnimationFrame(() => setTimeout(() => { window.shifts = []; window.ready = 1; }))")
        page.until(lambda: page.run("return window.ready"))
        page.draw("a red circle", steps=6)
        page.until(lambda: page.pictures() == 1)
        self.assertEqual(shifts(), [], "while it drew")


# Texts whose contrast with what lies below is under 4.5 (WCAG AA). Those of disabled controls may be.
CONTRAST = """
const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const over = ([r, g, b, a], below) => [r, g, b].map((v, i) => v * a + below[i] * (1 - a));
const ground = (node) => node === null ? [255, 255, 255] : over(parse(getComputedStyle(node).backgroundColor), ground(node.parentElement));
const root = document.querySelector("dialog[open]") ?? document.body;
const faint = [];
for (let walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), node; (node = walk.nextNode());) {
  const owner = node.parentElement;
  if (!node.data.trim() || !owner.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
  if (owner.closest(":disabled, .hidden-text, noscript, .badge, .input-number, label:has(:disabled)")) continue;
  const below = ground(owner), colour = over(parse(getComputedStyle(owner).color), below);
  const [high, low] = [light(colour), light(below)].sort((a, b) => b - a);
  const contrast = (high + 0.05) / (low + 0.05);
  if (contrast < 4.5) faint.push(`${contrast.toFixed(2)}: ${node.data.trim()}`);
}
return faint;
"""

if __name__ == "__main__":
    if PROGRAM is None:
        sys.exit(__doc__)
    unittest.main()
