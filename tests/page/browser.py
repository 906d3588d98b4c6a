"""A server and a browser for tests of the web page: Debian's chromium, chromium-driver and python3-selenium."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = float(os.environ.get("PAGE_TEST_PATIENCE", 180))  # seconds that a condition may take on a machine that has other things to do


def free_port():
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """`qwen-image serve` with the embedded model, or another."""

    def __init__(self, program, folder, *options, model=ROOT / "models/tiny"):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [str(program), "serve", "--model", str(model), "--port", str(self.port),
                        "--jobs-dir", str(folder), *options]
        self.log = open(f"{folder}.log", "ab")
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        try:
            WebDriverWait(self, PATIENCE, 0.05).until(Server.answers, "the server does not answer")
        except Exception:
            self.stop()
            print(pathlib.Path(self.log.name).read_text())
            raise

    def answers(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended with {self.process.returncode}")
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10) as reply:
                return reply.status == 200
        except OSError:
            return False

    def kill(self):
        """As if the machine had gone: nothing is said to clients."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.kill()
        self.log.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as reply:
            return reply.read()

    def jobs(self):
        return json.loads(self.get("/jobs"))["jobs"]

    def refusal(self, path, body):
        """The error in the reply to what is refused."""
        try:
            self.post(path, body)
        except urllib.error.HTTPError as error:
            return json.loads(error.read())["error"]
        raise AssertionError(f"{body} was accepted")

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return json.loads(reply.read())

    def delete(self, path):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method="DELETE"), timeout=PATIENCE):
            pass

    def clear(self):
        """Ends and forgets all jobs."""
        def empty(_):
            jobs = self.jobs()
            for job in jobs:
                with contextlib.suppress(OSError):  # it may have ended, or gone, by itself
                    self.delete("/jobs/" + job["id"])
            return not jobs
        WebDriverWait(self, PATIENCE, 0.05).until(empty)


class Browser:
    """Chromium, and what a test asks of the page in it."""

    def __init__(self, width=1280, height=900, dark=False):
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en-US"):
            options.add_argument(argument)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium's sandbox refuses to work for root
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(PATIENCE)
        self.resize(width, height)
        self.set_dark(dark)

    def close(self):
        self.driver.quit()

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def set_dark(self, dark, still=False):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}]})

    def open(self, url):
        """The page, as for somebody who has never been there."""
        self.driver.get(url)
        self.run("sessionStorage.clear()")
        self.driver.get(url)
        self.until(lambda: self.get("#link").get_attribute("data-state") != "wait", "the page has not asked the server")

    def until(self, condition, words="", patience=PATIENCE):
        try:
            return WebDriverWait(self.driver, patience, 0.05).until(lambda _: condition())
        except TimeoutException:
            seen = {name: self.text("#" + name) for name in ("stage-title", "stage-detail", "message", "banner-text")}
            raise AssertionError(f"{words or 'waited in vain'}; the page says {seen}; console: {self.console()}") from None

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def get(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """As it stands in the document, seen or not; in one go, since the page may replace nodes meanwhile."""
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def hidden(self, selector):
        return not self.get(selector).is_displayed()

    def in_view(self, selector):
        """The whole of it is on the screen, and nothing lies on it."""
        return self.run("""const node = document.querySelector(arguments[0]), box = node.getBoundingClientRect();
            const at = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
            return box.height > 0 && box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth && node.contains(at);""", selector)

    def cut(self, selector):
        """Whether a part of its text cannot be seen."""
        return self.run("""const node = document.querySelector(arguments[0]);
            return node.scrollHeight > node.clientHeight + 1 || node.scrollWidth > node.clientWidth + 1;""", selector)

    def click(self, selector):
        self.run("arguments[0].scrollIntoView({block: 'center'})", self.get(selector))
        self.get(selector).click()

    def choose(self, selector):
        """A radio button or a box, whose face is its label."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def fill(self, selector, text):
        self.get(selector).send_keys(Keys.CONTROL + "a" + Keys.NULL + text)

    def draw(self, prompt, **settings):
        """Fills the form and presses Draw. Settings: steps, seed, count, cfg, width and height."""
        self.run("document.getElementById('advanced').open = true")
        if "width" in settings:
            self.choose("[name=shape][value=custom]")
        for name, value in {"prompt": prompt, **settings}.items():
            self.fill("#" + name, str(value))
        self.click("#draw")

    def pictures(self):
        """How many pictures the gallery shows, really decoded."""
        return self.run("return [...document.querySelectorAll('.thumb img')].filter((i) => i.complete && i.naturalWidth > 0).length")

    def console(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self):
        """The addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
