# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import time

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import preflight
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

WANTED = {
    "space": [],
    "missing_space": "fail",
    "port": 9443,
    "port_daemon": "tether-ingress",
    "system": "linux",
    "controller_time": 1_000_000.0,
    "max_skew": 60,
    "libraries": [],
    "commands": {},
    "missing_packages": "report",
    "platforms": ["linux-x86_64"],
    "min_glibc": "2.30",
}
FIT = {
    "supervisor": "systemd",
    "python": [3, 11, 2],
    "python_path": "/usr/bin/python3",
    "system": "Linux",
    "machine": "x86_64",
    "glibc": "2.36",
    "musl": False,
    "uid": 0,
    "time": 1_000_005.0,
    "space": [],
    "libraries": {},
    "commands": {},
    "read_only": {},
    "listeners": [],
    "gpu_devices": [],
    "mac": {},
}
GIB = 1024**3


def plan(wanted=None, **seen):
    return preflight.plan({**WANTED, **(wanted or {})}, {**FIT, **seen})


def test_a_fit_host():
    facts = plan(libraries={"libgomp1": False, "libvulkan1": True}).facts
    assert facts["platform"] == "linux-x86_64"
    assert facts["clock_skew"] == 5.0
    assert facts["missing_packages"] == ["libgomp1"]
    assert facts["findings"] == []


def room(path, device=1, **more):
    """A file system with room for everything, but for what is said of it."""
    return {
        "path": path,
        "device": device,
        "bytes": 1,
        "free": 10 * GIB,
        "total": 10 * GIB,
        "files": 10_000,
        **more,
    }


STRANGER = {"pid": 7, "name": "nginx", "unit": "nginx.service", "address": ""}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({"uid": 1000}, "rights: found uid 1000; expected root"),
        ({"supervisor": None}, "no running systemd"),
        ({"python": [3, 8, 1]}, "found 3.8.1 at /usr/bin/python3; expected 3.9 or newer"),
        ({"machine": "aarch64"}, "found linux-aarch64"),
        ({"glibc": "2.4"}, "found glibc 2.4; expected glibc 2.30 or newer"),
        ({"glibc": None, "musl": True}, "found musl"),
        ({"time": 1_000_090.0}, "1970-01-12 13:48:10 UTC on this host, 1970-01-12 13:46:40 UTC on"),
        ({"listeners": [STRANGER]}, "process 7 (nginx) of unit nginx.service listening"),
        (
            {"space": [room("/opt", bytes=9 * GIB, free=GIB)]},
            "1.0 GiB free; expected 9.0 GiB. Free 8.0 GiB there",
        ),
        ({"space": [room("/opt", files=3)]}, "inodes at /opt: found room for 3 more files"),
        (
            {"read_only": {"/opt/tether": "/opt"}},
            "file system at /opt: found it read-only, with /opt/tether on it",
        ),
    ],
)
def test_findings(seen, message):
    with pytest.raises(Refusal) as refused:
        plan(**seen)
    assert message in str(refused.value)
    assert "1 problem;" in str(refused.value)


def test_another_system_than_the_inventory_says():
    mac = {"system": "Darwin", "machine": "arm64", "supervisor": "launchd", "glibc": None}
    with pytest.raises(Refusal) as refused:
        plan({"platforms": []}, **mac)
    assert (
        "1 problem; nothing was changed.\n- system: found Darwin; expected Linux, as the inventory"
        " says. Set fleet_system of this host to macos in the inventory." in str(refused.value)
    )
    assert plan({"platforms": [], "system": "macos"}, **mac).facts["platform"] == "darwin-arm64"


def test_all_findings_at_once():
    with pytest.raises(Refusal) as refused:
        plan({"missing_packages": "fail"}, uid=1, supervisor=None, commands={"nftables": False})
    assert "3 problems" in str(refused.value)
    assert [item["check"] for item in refused.value.facts["findings"]] == [
        "rights",
        "supervisor",
        "packages",
    ]


def test_too_little_room_is_reported_or_fails():
    seen = {"space": [room("/opt", bytes=9 * GIB, free=GIB, files=3)]}
    short = plan({"missing_space": "report"}, **seen).facts
    assert [item["check"] for item in short["short"]] == ["inodes at /opt", "disk space at /opt"]
    assert short["findings"] == []
    with pytest.raises(Refusal, match="2 problems") as refused:
        plan(**seen)
    assert refused.value.facts["findings"] == refused.value.facts["short"] == short["short"]
    assert plan().facts["short"] == []


def test_our_own_ingress_may_hold_the_port():
    plan(listeners=[{**STRANGER, "unit": "tether-ingress.service"}])


def test_paths_on_one_file_system_share_its_space():
    def space(*devices):
        return [room("/p%d" % i, device, bytes=6 * GIB) for i, device in enumerate(devices)]

    plan(space=space(1, 2))
    plan(space=[room("/p", files=-1)])  # a file system without a fixed number of inodes
    with pytest.raises(Refusal, match="/p0 and /p1"):
        plan(space=space(1, 1))


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ('PRETTY_NAME="Debian"\nID=debian\n', "Debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "Debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "RedHat"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "Suse"),
        ("VERSION_ID=debian\nID=arch\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_families_of_operating_systems(text, family):
    assert preflight.os_family(text) == family


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("Linux", "x86_64", "linux-x86_64"),
        ("Linux", "aarch64", "linux-aarch64"),
        ("Darwin", "arm64", "darwin-arm64"),
        ("Darwin", "x86_64", "darwin-x86_64"),
        ("", "", "unknown-unknown"),
    ],
)
def test_platform_names(system, machine, name):
    assert preflight.platform_name(system, machine) == name


def test_ldconfig():
    text = (
        "2 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibvulkan.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libvulkan.so.1\n"
        "\tlibz.so.1 (libc6) => /lib/libz.so.1\n"
    )
    assert preflight.parse_ldconfig(text) == {"libvulkan.so.1", "libz.so.1"}


def test_observe_this_machine(tmp_path):
    family = preflight.os_family(preflight._os_release())
    seen = preflight.observe(
        {
            **WANTED,
            "space": [{"path": str(tmp_path / "not/yet"), "bytes": 1}],
            "libraries": [
                {"library": "libc.so.6", "packages": {family: "libc6"}},
                {"library": "libnothing.so.9", "packages": {family: "nothing"}},
                {"library": "libnothing.so.9", "packages": {"Elsewhere": "other"}},
            ],
            "commands": {"coreutils": "ls", "nothing": "no-such-command"},
        }
    )
    assert seen["libraries"] == {"libc6": True, "nothing": False}
    assert seen["commands"] == {"coreutils": True, "nothing": False}
    assert seen["space"][0]["free"] > 0
    assert abs(seen["time"] - time.time()) < 5
