"""Machines that are network namespaces of this one, with a switch between them whose links have a bandwidth and a delay.

Needs root, iproute2, taskset and unshare (util-linux). Nothing outside the namespaces is touched: the switch has one of its own.
The addresses are private and only exist inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUBNET = "10.77.0"
SECONDS_TO_END = 5
# A token bucket lets so much through at once after a pause: one packet as large as the kernel makes them.
BURST_BYTES = 70_000
MOST_SECONDS_IN_QUEUE = 0.4
NEEDED = ("ip", "tc", "taskset", "unshare", "mpirun")

# mpirun calls it as it would call ssh: HOST COMMAND. Each host has a core and a name of its own.
AGENT = """#!/bin/sh
host=$1
shift
machine=${{host##*.}}
exec taskset --cpu-list $(( (machine - 1) % {cores} )) ip netns exec {prefix}m$machine \\
  unshare --uts sh -c 'echo "$1" > /proc/sys/kernel/hostname; exec sh -c "$2"' sh "machine$machine" "$*"
"""


class NetworkError(Exception):
    pass


def call(*command: object) -> str:
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode != 0:
        raise NetworkError(f"{' '.join(words)}: {result.stderr.strip()}")
    return result.stdout


def missing() -> str:
    """Why no network can be made here; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [name for name in NEEDED if not shutil.which(name)]
    return f"these programs are missing: {', '.join(absent)}" if absent else ""


def ends(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Network:
    """`with Network(2) as network:`; everything is gone behind it."""

    def __init__(self, machines: int, delay: float = 0) -> None:
        """`delay`: seconds that each message takes from one machine to another."""
        self.machines = machines
        self.delay = delay
        self.prefix = f"qwi{os.getpid()}"
        self.switch = f"{self.prefix}s"
        self.delayed_by = ""
        self._relay: subprocess.Popen[str] | None = None
        self._made: list[str] = []
        self._scratch = Path()

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def name(self, machine: int) -> str:
        return f"{self.prefix}m{machine + 1}"

    def address(self, machine: int) -> str:
        return f"{SUBNET}.{machine + 1}"

    def _make(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="qwen_image_network_"))
        for name in [self.switch, *(self.name(machine) for machine in range(self.machines))]:
            call("ip", "netns", "add", name)
            self._made.append(name)
        ports = [f"p{machine + 1}" for machine in range(self.machines)]
        for machine, port in enumerate(ports):
            name = self.name(machine)
            hardware = f"02:00:00:00:00:{machine + 1:02x}"
            call("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name, "address", hardware)
            call("ip", "-n", self.switch, "link", "set", port, "up")
            call("ip", "-n", name, "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                call("ip", "-n", name, "link", "set", device, "up")
        if self.delay == 0 or self._delay_by_kernel():
            self._bridge(ports)
        else:
            self._bridge_of_our_own(ports)
        self._write_agent()

    def _bridge(self, ports: list[str]) -> None:
        call("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for port in ports:
            call("ip", "-n", self.switch, "link", "set", port, "master", "bridge")

    def _delay_by_kernel(self) -> bool:
        milliseconds = f"{1000 * self.delay}ms"
        try:
            for machine in range(self.machines):
                call("tc", "-n", self.switch, "qdisc", "add", "dev", f"p{machine + 1}", "root", "netem", "delay", milliseconds, "limit", 100000)
        except NetworkError:
            return False
        self.delayed_by = "netem"
        return True

    def _bridge_of_our_own(self, ports: list[str]) -> None:
        command = [sys.executable, "-m", "tools.machines.delay", str(1000 * self.delay), *ports]
        self._relay = subprocess.Popen(["ip", "netns", "exec", self.switch, *command], cwd=ROOT, text=True)
        self.delayed_by = "tools/machines/delay.py (this kernel's tc has no netem)"
        time.sleep(0.5)
        if self._relay.poll() is not None:
            raise NetworkError("tools.machines.delay ended at once")

    def _write_agent(self) -> None:
        self.agent.write_text(AGENT.format(cores=os.cpu_count() or 1, prefix=self.prefix), encoding="utf-8")
        self.agent.chmod(0o700)

    @property
    def agent(self) -> Path:
        return self._scratch / "agent.sh"

    def limit(self, bits_per_second: float | None) -> None:
        """Of each machine's link, in each direction. None: as fast as this kernel."""
        shape = ["tbf", "rate", f"{int(bits_per_second or 0)}bit", "burst", f"{BURST_BYTES}b", "latency", f"{MOST_SECONDS_IN_QUEUE}s"]
        links = [(self.name(machine), "eth0") for machine in range(self.machines)]
        # Between two machines one end of a link limits the other; several may send to the same one.
        if self.machines > 2 and self.delayed_by != "netem":
            links += [(self.switch, f"p{machine + 1}") for machine in range(self.machines)]
        for namespace, device in links:
            if bits_per_second:
                call("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *shape)
            else:
                with contextlib.suppress(NetworkError):  # there was none
                    call("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")

    def sent_bytes(self) -> int:
        """By all machines together so far, as their interfaces counted."""
        counter = "/sys/class/net/eth0/statistics/tx_bytes"
        return sum(int(call("ip", "netns", "exec", self.name(machine), "cat", counter)) for machine in range(self.machines))

    def probe(self, count: int) -> dict[str, float]:
        """What a plain TCP connection sees: `latency` of a byte, `rate` of so many."""
        probe = [sys.executable, "-m", "tools.machines.probe"]
        listener = subprocess.Popen(["ip", "netns", "exec", self.name(1), *probe, "answer", self.address(1)], cwd=ROOT, text=True)
        try:
            command = ["ip", "netns", "exec", self.name(0), *probe, "ask", self.address(1), str(count)]
            result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
            answer: dict[str, float] = json.loads(result.stdout)
            return answer
        finally:
            ends([listener])

    def run(self, command: list[str], environment: dict[str, str], timeout: float) -> str:
        """Starts the command on all machines, each with a core, and returns what the first one prints."""
        settings = {
            "plm_rsh_agent": str(self.agent),
            "btl": "tcp,self",
            "btl_tcp_if_include": f"{SUBNET}.0/24",
            "oob_tcp_if_include": f"{SUBNET}.0/24",
            "hwloc_base_binding_policy": "none",  # the agent has chosen the cores
        }
        mpirun = ["mpirun", "--host", ",".join(self.address(machine) for machine in range(self.machines)), "-n", str(self.machines)]
        for name, value in settings.items():
            mpirun += ["--mca", name, value]
        if os.geteuid() == 0:
            mpirun.append("--allow-run-as-root")
        started = subprocess.Popen(
            ["taskset", "--cpu-list", "0", "ip", "netns", "exec", self.name(0), *mpirun, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            out, errors = started.communicate(timeout=timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
            ends([started])
            raise
        if started.returncode != 0:
            raise NetworkError(f"{' '.join(command)}: exit code {started.returncode}\n{errors.strip()}")
        return out

    def _remove(self) -> None:
        # A second Ctrl-C must not leave half of it behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if self._relay:
            ends([self._relay])
        for name in reversed(self._made):
            # What was started in a namespace and has not ended would keep it alive.
            with contextlib.suppress(NetworkError):
                for process in call("ip", "netns", "pids", name).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
            with contextlib.suppress(NetworkError):
                call("ip", "netns", "delete", name)
        self._made = []
        if self._scratch != Path():
            shutil.rmtree(self._scratch, ignore_errors=True)
