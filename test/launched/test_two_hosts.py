"""Two hosts with two ranks each: network namespaces with names of their own, joined by a bridge, so that MPI sees
separate hosts and their ranks talk over TCP.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launching import MPIRUN, PROLOGUE, Job, launcher_is_open_mpi, needs_mpirun
from support import ROOT

HOSTS = (1, 2)
RANKS = 2 * len(HOSTS)


def run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=20, capture_output=True)


def can_make_hosts() -> str:
    """Why not; empty if hosts can be made."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "needs iproute2 and util-linux"
    if os.geteuid() != 0:
        return "needs root"
    name = f"hvdprobe{os.getpid()}"
    try:
        run_ip("netns", "add", name)
        run_ip("netns", "del", name)
    except subprocess.SubprocessError as error:
        return f"cannot make network namespaces: {error}"
    return ""


class Hosts:
    """The hosts of one test run; names end in the process's number, so that runs do not meet."""

    def __init__(self, folder: Path) -> None:
        self.suffix = os.getpid() % 10000
        self.bridge = f"hvdb{self.suffix}"
        # A network of its own in the range for documentation, which nobody routes.
        self.network = "198.51.100"
        self.agent = folder / "agent"
        # Called as ssh is: options, host, command.
        self.agent.write_text(
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\n"
            f"name=hvd{self.suffix}n${{host##*.}}\n"
            'exec ip netns exec "$name" unshare --uts bash -c "hostname $name; $*"\n'
        )
        self.agent.chmod(0o755)

    def up(self) -> None:
        run_ip("link", "add", self.bridge, "type", "bridge")
        run_ip("addr", "add", f"{self.network}.254/24", "dev", self.bridge)
        run_ip("link", "set", self.bridge, "up")
        for host in HOSTS:
            space, link = f"hvd{self.suffix}n{host}", f"hvd{self.suffix}v{host}"
            run_ip("netns", "add", space)
            run_ip("link", "add", link, "type", "veth", "peer", "name", "e0", "netns", space)
            run_ip("link", "set", link, "master", self.bridge)
            run_ip("link", "set", link, "up")
            run_ip("-n", space, "addr", "add", f"{self.network}.{host}/24", "dev", "e0")
            run_ip("-n", space, "link", "set", "e0", "up")
            run_ip("-n", space, "link", "set", "lo", "up")

    def down(self) -> None:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", f"hvd{self.suffix}n{host}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)

    def run(self, command: list[str], *launcher: str, seconds: float = 150) -> Job:
        """`command` on two ranks of each host."""
        network = f"{self.network}.0/24"
        where = ",".join(f"{self.network}.{host}:2" for host in HOSTS)
        parameters = {
            "plm_rsh_agent": str(self.agent),
            "pml": "ob1",
            "btl": "self,vader,tcp",
            "btl_tcp_if_include": network,
            "oob_tcp_if_include": network,
        }
        mpirun = [str(MPIRUN), "-np", str(RANKS), "-H", where, "--bind-to", "none", "-wdir", str(ROOT)]
        for name, value in parameters.items():
            mpirun += ["-mca", name, value]
        mpirun += ["-x", "PYTHONPATH"]
        # Open MPI 5 leaves starting processes to PRRTE, which has a name of its own for the agent.
        variables = {"PRTE_MCA_plm_ssh_agent": str(self.agent)}
        return Job(command, [*mpirun, *launcher], seconds, variables)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    reason = can_make_hosts()
    if reason:
        pytest.skip(reason)
    if not launcher_is_open_mpi():
        pytest.skip("the launcher's options are Open MPI's")
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        made.up()
        yield made
    finally:
        made.down()


pytestmark = needs_mpirun
WHO = "say(size, hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous())"


@pytest.mark.parametrize("placement", ["slot", "node"])
def test_ranks_know_their_place(hosts: Hosts, placement: str) -> None:
    job = hosts.run([sys.executable, "-c", PROLOGUE + WHO], "--map-by", placement)
    assert job.status == 0, job
    for rank in range(RANKS):
        host, local = divmod(rank, 2) if placement == "slot" else divmod(rank, 2)[::-1]
        assert job.of(rank) == f"rank {rank}: {RANKS} {local} 2 {host} 2 True", job


def test_operations_between_hosts(hosts: Hosts) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test/test_tensorflow.py"]
    job = hosts.run(command, seconds=300)
    assert job.status == 0, job
    assert job.output.count(" passed") == RANKS, job
