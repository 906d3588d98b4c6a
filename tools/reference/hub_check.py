"""Checks that `qwen-image pull` and huggingface_hub share one cache: each finds what the other downloaded.

A server on 127.0.0.1 plays Hugging Face, with models/tiny as its only repository.

    python -m tools.reference.hub_check build/release/qwen-image
"""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MODEL = PROJECT / "models" / "tiny"
REPO, COMMIT = "qwen-image-cpp/tiny", "0123456789abcdef0123456789abcdef01234567"


def is_large(path):
    return path.endswith(".safetensors")


def hash_of(path):
    data = (MODEL / path).read_bytes()
    if is_large(path):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def entry(path, name_key, id_key):
    size = (MODEL / path).stat().st_size
    found = {name_key: path, id_key: "e" * 40 if is_large(path) else hash_of(path), "size": size, "type": "file"}
    if is_large(path):
        found["lfs"] = {"sha256": hash_of(path), "oid": hash_of(path), "size": size, "pointerSize": 135}
    return found


class Hub(http.server.BaseHTTPRequestHandler):
    files = sorted(p.relative_to(MODEL).as_posix() for p in MODEL.rglob("*") if p.is_file())

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"X-Repo-Commit": COMMIT, "Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        files = f"/{REPO}/resolve/{COMMIT}/"
        if path.startswith(f"/api/models/{REPO}/tree/"):
            self.answer(200, json.dumps([entry(f, "path", "oid") for f in self.files]).encode())
        elif path.startswith(f"/api/models/{REPO}/revision/") or path == f"/api/models/{REPO}":
            siblings = [entry(f, "rfilename", "blobId") for f in self.files]
            self.answer(200, json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode())
        elif path.removeprefix(files) in self.files:
            name = path.removeprefix(files)
            self.answer(200, (MODEL / name).read_bytes(), ETag=f'"{hash_of(name)}"')
        else:
            self.answer(404)

    do_HEAD = do_GET


def cache_of(home):
    """Every path below the cache with what it links to, without what only one of the two keeps."""
    root = pathlib.Path(home) / "hub" / ("models--" + REPO.replace("/", "--"))
    paths = [p for part in ("blobs", "refs", "snapshots") for p in (root / part).rglob("*")]
    return {p.relative_to(root).as_posix(): os.readlink(p) if p.is_symlink() else p.is_dir() or p.read_bytes()
            for p in paths}


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    os.environ["HF_HUB_DISABLE_XET"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        os.environ["HF_HOME"] = theirs  # read when huggingface_hub is imported
        import huggingface_hub

        subprocess.run([program, "pull", REPO, "-q"], env={**os.environ, "HF_HOME": ours}, check=True)
        found = huggingface_hub.snapshot_download(REPO, cache_dir=f"{ours}/hub", local_files_only=True)
        assert found.endswith(f"/snapshots/{COMMIT}"), found
        assert not huggingface_hub.scan_cache_dir(f"{ours}/hub").warnings

        huggingface_hub.snapshot_download(REPO)
        subprocess.run([program, "generate", "a star", "--model", REPO, "--steps", "1", "-q", "-o", f"{ours}/x.png"],
                       check=True)
        mine, other = cache_of(ours), cache_of(theirs)
        assert mine == other, sorted(set(mine.items()) ^ set(other.items()))
    print(f"qwen-image and huggingface_hub {huggingface_hub.__version__} find each other's downloads; "
          f"{len(mine)} paths are the same")


if __name__ == "__main__":
    main()
