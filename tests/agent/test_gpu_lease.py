"""One active run per GPU: a second one waits and says for whom."""

import subprocess
import sys
from uuid import uuid4

from ddconsole.runner.gpu_lease import GpuLease


def test_a_second_run_waits_and_says_for_whom() -> None:
    gpus = [f"GPU-{uuid4()}", f"GPU-{uuid4()}"]
    program = (
        "import sys,time\nfrom ddconsole.runner.gpu_lease import GpuLease\n"
        "lease=GpuLease(sys.argv[1:],'first-run',simulated=False)\nprint(lease.take(),flush=True)\nsys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", program, gpus[1]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "None"
        second = GpuLease(gpus, "second-run", simulated=False)
        waits_for = second.take()
        assert waits_for is not None
        assert f"{gpus[1]} is leased by run first-run (pid {holder.pid})" in waits_for
        assert GpuLease(gpus, "rehearsal", simulated=True).take() is None
        holder.kill()
        holder.wait()
        assert second.take() is None
    second.give_back()
    third = GpuLease(gpus, "third-run", simulated=False)
    assert third.take() is None
    third.give_back()
