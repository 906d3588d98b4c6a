"""Puts `qwen-image serve` under load and says whether it stood it: rude clients, many jobs, memory.

    python -m tools.load.load_test build/release/qwen-image [--clients 50] [--jobs 1000]

Needs Python 3 alone. Exits with 1 if a job was lost, the server stopped answering or memory grew.
"""
import argparse
import collections
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SMALL_JOB = {"prompt": "a red circle", "width": 32, "height": 32, "steps": 1, "cfg": 1}


class Server:
    def __init__(self, program, folder, options):
        self.log = open(os.path.join(folder, "log.txt"), "w")
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "--jobs-dir", os.path.join(folder, "jobs"), "--no-prompt-cache", *options],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline()).group(1))

    def ask(self, method, path, body=None, timeout=600):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {"Content-Type": "application/json"} if body is not None else {})
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def job(self, job_id):
        status, _, body = self.ask("GET", f"/jobs/{job_id}")
        return json.loads(body) if status == 200 else None

    def submit(self, body):
        """The id, once the queue has room."""
        while True:
            status, headers, reply = self.ask("POST", "/jobs", body)
            if status == 202:
                return json.loads(reply)["id"]
            if status not in (429, 503):
                raise RuntimeError(f"a job was refused with {status}: {reply[:200]}")
            time.sleep(0.05 if status == 429 else 0.2)

    def wait(self, job_id):
        """Reads the job's events to their end; the job as it is then."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("GET", f"/jobs/{job_id}/events")
        reply = connection.getresponse()
        name = ""
        for line in reply:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and name == "end":
                connection.close()
                return json.loads(line[6:])
        connection.close()
        return None

    def memory(self):
        text = self.ask("GET", "/metrics")[2].decode()
        return {name: int(float(re.search(rf"^qwen_image_{name} (\S+)", text, re.M).group(1))) / 1e6
                for name in ("resident_memory_bytes", "peak_memory_bytes")}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=120)
        self.log.close()
        return code


def raw(server, data):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(data)
    return connection


def rude(server, turn, accepted):
    """One thing that nobody should do."""
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    body = json.dumps(SMALL_JOB).encode()
    kind = turn % 6
    if kind == 0:  # garbage
        connection = raw(server, os.urandom(500) + b"\r\n\r\n")
    elif kind == 1:  # leaves in the middle of a header
        connection = raw(server, b"POST /jobs HTTP/1.1\r\nHo")
    elif kind == 2:  # leaves in the middle of a body
        connection = raw(server, b"POST /jobs HTTP/1.1\r\n" + host + b"Content-Length: 100000\r\n\r\n" + body)
    elif kind == 3:  # leaves while its picture is drawn
        body = json.dumps({"prompt": "a star", "size": "64x64", "steps": 4, "cfg": 1}).encode()
        connection = raw(server, b"POST /v1/images/generations HTTP/1.1\r\n" + host +
                         b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    elif kind == 4:  # leaves its event stream
        status, _, reply = server.ask("POST", "/jobs", SMALL_JOB)
        if status != 202:
            return
        job_id = json.loads(reply)["id"]
        accepted.append(job_id)
        connection = raw(server, b"GET /jobs/" + job_id.encode() + b"/events HTTP/1.1\r\n" + host + b"\r\n")
        connection.recv(100)
    else:  # sends a byte now and then
        connection = raw(server, b"GET /health HTTP/1.1\r\n")
        for byte in b"X-Slow: very":
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
    if turn % 2:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    connection.close()


def many_clients(server, clients, rounds):
    """Half of the clients draw and wait, half are rude. How the accepted jobs ended."""
    accepted, ended, failures = [], collections.Counter(), []
    lock = threading.Lock()

    def polite(number):
        for turn in range(rounds):
            job_id = server.submit(dict(SMALL_JOB, seed=number * rounds + turn))
            accepted.append(job_id)
            job = server.wait(job_id) or server.job(job_id)
            with lock:
                ended[job["state"] if job else "lost"] += 1

    def run(number):
        try:
            if number % 2 == 0:
                polite(number)
            else:
                for turn in range(rounds):
                    try:
                        rude(server, number // 2 + turn, accepted)
                    except OSError:
                        pass  # the server closed first, which is its right
        except Exception as error:  # pylint: disable=broad-except
            failures.append(repr(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    states = collections.Counter()
    for job_id in accepted:
        server.wait(job_id)
        job = server.job(job_id)
        states[job["state"] if job else "lost"] += 1
    return states, failures


def many_jobs(server, jobs, marks):
    """Draws one small picture after the other, several waiting at any time. Memory at the marks."""
    figures, waiting, done = {0: server.memory()}, collections.deque(), 0
    while done < jobs:
        while len(waiting) < 8 and done + len(waiting) < jobs:
            waiting.append(server.submit(dict(SMALL_JOB, seed=done + len(waiting))))
        job = server.wait(waiting.popleft())
        if not job or job["state"] != "done":
            raise RuntimeError(f"a job ended as {job}")
        done += 1
        if done in marks:
            figures[done] = server.memory()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4, help="of each client")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--growth", type=float, default=10, help="MB that memory may grow after 100 jobs")
    options = parser.parse_args()
    random.seed(0)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.program, folder, ["--keep", "2000"])
        begin = time.monotonic()
        states, failures = many_clients(server, options.clients, options.rounds)
        print(f"{options.clients} clients, half of them rude: {sum(states.values())} jobs accepted, "
              f"{dict(states)}, {time.monotonic() - begin:.1f} s")
        wrong += failures
        if states["lost"] or set(states) - {"done", "cancelled"}:
            wrong.append(f"jobs were lost or failed: {dict(states)}")
        if server.ask("GET", "/health")[0] != 200:
            wrong.append("the server does not answer any more")
        if server.stop() != 0:
            wrong.append("the server did not end in good order")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.program, folder, ["--keep", "100"])
        begin = time.monotonic()
        figures = many_jobs(server, options.jobs, {100, 250, 500, 750, options.jobs})
        print(f"{options.jobs} small jobs: {time.monotonic() - begin:.1f} s")
        for done, memory in figures.items():
            print(f"  after {done:5} jobs: {memory['resident_memory_bytes']:.1f} MB resident, "
                  f"{memory['peak_memory_bytes']:.1f} MB at most")
        first = figures.get(100, figures[0])["resident_memory_bytes"]
        growth = figures[options.jobs]["resident_memory_bytes"] - first
        if growth > options.growth:
            wrong.append(f"memory grew by {growth:.1f} MB after the first 100 jobs")
        if server.stop() != 0:
            wrong.append("the server did not end in good order")
    for problem in wrong:
        print("FAILED:", problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
