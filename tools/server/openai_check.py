"""Uses `qwen-image serve` with OpenAI's official Python client, unchanged.

    python -m tools.server.openai_check build/release/qwen-image
"""

import base64
import contextlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import openai
from PIL import Image

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = "a red circle on a blue background"
SETTINGS = {"seed": 7, "steps": 4, "cfg": 3.0, "negative_prompt": "blurry"}
KEY = "a-key-for-this-check"


@contextlib.contextmanager
def served(engine, folder, *options, key=None):
    """Runs a server on a free port; its address."""
    environment = {**os.environ, **({"QWEN_IMAGE_API_KEY": key} if key else {})}
    command = [engine, "serve", "--model", str(PROJECT / "models" / "tiny"), "--port", "0", "--quiet",
               "--jobs-dir", str(folder / "jobs"), *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        ready = re.search(r"http://[^/ ]+", server.stdout.readline())
        expect(ready, "the server says where it is")
        yield ready.group()
        server.send_signal(signal.SIGTERM)
        expect(server.wait(timeout=120) == 0, "the server ends with 0 at SIGTERM")
    finally:
        server.kill()
        server.wait()


found: list[str] = []  # what was so


def expect(condition, what):
    if not condition:
        raise SystemExit(f"openai_check: not so: {what}")
    found.append(what)


def expect_error(kind, call, *words):
    try:
        call()
    except kind as error:
        expect(all(word in str(error) for word in words), f"{words} in {error}")
        return error
    raise SystemExit(f"openai_check: no {kind.__name__}")


def client_of(url, key="none", **options):
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, **options)


def picture(b64_json):
    return Image.open(io.BytesIO(base64.b64decode(b64_json)))


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def check_generate(client, engine, folder):
    reply = client.images.generate(prompt=PROMPT, size="128x64", n=2, response_format="b64_json", extra_body=SETTINGS)
    pictures = [picture(image.b64_json) for image in reply.data]
    expect([image.size for image in pictures] == [(128, 64)] * 2, "two pictures of the size")
    expect(reply.created > 1_600_000_000, "a time")
    # The second one, as the command line draws it.
    subprocess.run([engine, "generate", PROMPT, "--model", str(PROJECT / "models" / "tiny"), "--size", "128x64", "--seed", "8",
                    "--steps", "4", "--cfg", "3", "--negative-prompt", "blurry", "-q", "-o", "cli.png"], cwd=folder, check=True)
    expect(pictures[1].tobytes() == Image.open(folder / "cli.png").tobytes(), "the picture is the command line's")

    reply = client.images.generate(prompt=PROMPT, size="128x64", response_format="url", extra_body=SETTINGS)
    expect(reply.data[0].b64_json is None, "no base64 beside the address")
    with urllib.request.urlopen(reply.data[0].url) as file:
        expect(Image.open(io.BytesIO(file.read())).tobytes() == pictures[0].tobytes(), "the picture at the address")

    data = client.images.generate(prompt=PROMPT, extra_body={"steps": 1}).data[0]
    expect(data.url and picture(data.b64_json).size == (128, 128), "both forms, of the model's size, if nothing is said")
    return pictures[0]


def check_formats(client):
    options = {"prompt": PROMPT, "size": "64x64", "response_format": "b64_json", "extra_body": {"steps": 1, "seed": 3}}
    exact = picture(client.images.generate(**options).data[0].b64_json)
    for name, compression in (("jpeg", 80), ("webp", 100)):
        reply = client.images.generate(output_format=name, output_compression=compression, **options)
        image = picture(reply.data[0].b64_json)
        expect(reply.output_format == name and image.format == name.upper() and image.size == (64, 64), f"a picture as {name}")
        expect("qwen-image" in json.loads(image.getexif().get_ifd(0x8769)[0x9286][8:]), f"settings in {name}")
        if name == "webp":
            expect(image.convert("RGB").tobytes() == exact.tobytes(), "every pixel is kept")


def check_stream(client):
    source = Image.new("RGB", (128, 128), (20, 40, 200))
    options = {"prompt": PROMPT, "stream": True, "partial_images": 2, "output_format": "webp", "extra_body": {"steps": 40}}
    streams = {"image_generation": client.images.generate(size="128x128", **options),
               "image_edit": client.images.edit(image=("a.png", png(source)), **options)}
    for what, stream in streams.items():
        events = list(stream)
        expect(events[-1].type == f"{what}.completed", f"{what}: the picture comes last")
        expect(picture(events[-1].b64_json).size == (128, 128) and events[-1].output_format == "webp", "as it was asked for")
        partial = events[:-1]
        expect(1 <= len(partial) <= 2, "previews")
        expect(all(event.type == f"{what}.partial_image" for event in partial), "nothing but previews before")
        expect([event.partial_image_index for event in partial] == list(range(len(partial))), "in their order")
        expect(picture(partial[0].b64_json).format == "WEBP", "previews have the picture's format")


def check_edit(client):
    source = Image.new("RGB", (128, 128), (20, 40, 200))
    options = {"prompt": "make it red", "response_format": "b64_json", "extra_body": {"steps": 2, "seed": 3}}
    image = picture(client.images.edit(image=("a.png", png(source)), **options).data[0].b64_json)
    expect(image.size == (128, 128), "an edit")
    several = client.images.edit(image=[("a.png", png(source)), ("b.png", png(source))], n=2, **options)
    expect(len(several.data) == 2, "two edits of two pictures")
    # Transparent is redrawn: the right half.
    mask = Image.new("RGBA", (128, 128), (255, 255, 255, 255))
    mask.paste((255, 255, 255, 0), (64, 0, 128, 128))
    image = picture(client.images.edit(image=("a.png", png(source)), mask=("m.png", png(mask)), **options).data[0].b64_json)
    left, right = (0, 0, 64, 128), (72, 0, 128, 128)
    expect(image.crop(left).tobytes() == source.crop(left).tobytes(), "what the mask covers stays to the bit")
    expect(image.crop(right).tobytes() != source.crop(right).tobytes(), "what is transparent is redrawn")


def check_models(client):
    models = client.models.list().data
    expect(len(models) == 1 and client.models.retrieve(models[0].id) == models[0], "one model")
    named = client.images.generate(prompt=PROMPT, model=models[0].id, size="64x64", extra_body={"steps": 1})
    expect(len(named.data) == 1, "a picture of the model, by its name")
    expect_error(openai.NotFoundError, lambda: client.models.retrieve("gpt-image-1"), "gpt-image-1")


def check_refusals(client):
    def refused(*words, **fields):
        error = expect_error(openai.BadRequestError, lambda: client.images.generate(**{"prompt": PROMPT, **fields}), *words)
        expect(error.type == "invalid_request_error" and error.request_id, "type and request id")

    refused("33x33", "multiples of 16", size="33x33")
    refused("n must be", n=10**9)
    refused("steps must be", extra_body={"steps": -1})
    refused("cfg must be", extra_body={"cfg": "high"})
    refused('"stpes"', extra_body={"stpes": 4})
    refused("dall-e-3", model="dall-e-3")
    refused("gif", output_format="gif")
    refused("PNG", output_compression=50)
    refused("transparent", background="transparent")
    refused("a stream", n=2, stream=True)
    refused("10485760 bytes", prompt="x" * (10 << 20))
    expect_error(openai.BadRequestError, lambda: client.images.edit(image=("a.png", b"no picture"), prompt="x"), "image[0]")


def jobs_of(url):
    with urllib.request.urlopen(f"{url}/jobs") as reply:
        return json.load(reply)["jobs"]


def delete(url, job):
    urllib.request.urlopen(urllib.request.Request(f"{url}/jobs/{job['id']}", method="DELETE")).close()


def end_of(url, job):
    """The job when it has ended."""
    with urllib.request.urlopen(f"{url}/jobs/{job['id']}/events") as events:
        lines = [line for line in events if line.startswith(b"data: ")]
    return json.loads(lines[-1][6:])


def check_full_queue(client, url):
    body = json.dumps({"prompt": PROMPT, "steps": 200, "n": 10}).encode()
    try:
        while True:
            urllib.request.urlopen(urllib.request.Request(f"{url}/jobs", body)).close()
    except urllib.error.HTTPError as error:
        expect(error.code == 429, "a full queue is 429")
    limited = expect_error(openai.RateLimitError, lambda: client.images.generate(prompt=PROMPT))
    expect(int(limited.response.headers["retry-after"]) >= 1, "Retry-After")
    for job in jobs_of(url):
        if job["state"] in ("queued", "running"):
            delete(url, job)
            expect(end_of(url, job)["state"] == "cancelled", "cancelled")


def check_leaving(url):
    """A client that gives up leaves no work behind."""
    hasty = client_of(url, timeout=2)
    expect_error(openai.APITimeoutError, lambda: hasty.images.generate(prompt=PROMPT, n=10, extra_body={"steps": 200}))
    expect(end_of(url, jobs_of(url)[0])["state"] == "cancelled", "the job of a client that left is cancelled")


def check_key(engine, folder):
    with served(engine, folder, key=KEY) as url:
        expect_error(openai.AuthenticationError, client_of(url, "wrong-key-of-mine").models.list)
        expect_error(openai.AuthenticationError, lambda: client_of(url, "wrong-key-of-mine").images.generate(prompt=PROMPT))
        expect(len(client_of(url, KEY).models.list().data) == 1, "the right key")


def check_docs(url):
    text = (PROJECT / "docs" / "server.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    expect(blocks, "Python in docs/server.md")
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8080", url), "docs/server.md", "exec"), {})


def main():
    engine = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chdir(folder)
        with served(engine, folder, "--queue", "2") as url:
            client = client_of(url)
            check_generate(client, engine, folder)
            check_formats(client)
            check_stream(client)
            check_edit(client)
            check_models(client)
            check_refusals(client)
            check_full_queue(client, url)
            check_leaving(url)
            check_docs(url)
        check_key(engine, folder)
    print(f"openai {openai.__version__}: {len(found)} checks passed")


if __name__ == "__main__":
    main()
