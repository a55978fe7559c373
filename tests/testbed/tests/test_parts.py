# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What can be checked of the test bed without bringing one up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bed import cache, files, goparts, images, layout, process
from bed.errors import BedError
from bed.layout import Bed


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests away from real beds and caches."""
    monkeypatch.setattr(layout, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(layout, "LOCKS", tmp_path / "cache" / "locks")
    monkeypatch.setattr(cache, "CACHE_ROOT", tmp_path / "cache")
    monkeypatch.setattr(cache, "LOCKS", tmp_path / "cache" / "locks")


def test_wellknown_beds_have_wellknown_addresses() -> None:
    demo, test = layout.settle("demo", None), layout.settle("test", None)
    assert demo.network == "10.99.0.0/24"
    assert test.network == "10.99.1.0/24"
    assert test.hosts == {
        "gpu1": "10.99.1.11",
        "gpu2": "10.99.1.12",
        "neighbour": "10.99.1.21",
    }


def test_other_beds_share_nothing() -> None:
    beds = [layout.settle(f"bed-{number}", None) for number in range(40)]
    for attribute in ("number", "namespace", "veth", "pod_range", "service_range", "state"):
        assert len({getattr(bed, attribute) for bed in beds}) == 40


def test_a_bed_keeps_its_number_and_its_addresses() -> None:
    first = layout.settle("mine", ["gpu1", "mac1"])
    second = layout.settle("mine", ["gpu1", "gpu2", "mac1", "mac2"])
    assert second.number == first.number
    assert second.hosts["mac1"] == first.hosts["mac1"]
    assert layout.settle("mine", None) == second
    assert len(set(second.hosts.values())) == 4


def test_a_bed_takes_more_hosts_than_have_numbers_of_their_own() -> None:
    names = [*(f"gpu{number}" for number in range(1, 31)), "neighbour"]
    bed = layout.settle("wide", names)
    assert list(bed.hosts) == names
    assert len(set(bed.hosts.values())) == 31
    assert bed.hosts["gpu9"] == bed.address(19)
    assert bed.hosts["neighbour"] == bed.address(21)
    assert layout.settle("macs", ["mac1", "mac9"]).hosts["mac9"].endswith(".30")
    # Growing moves nobody: what was given out stays.
    grown = layout.settle("wide", [*names, "gpu31"])
    assert {name: grown.hosts[name] for name in names} == bed.hosts


def test_service_ranges_of_all_beds_stay_apart() -> None:
    ranges = {Bed("any", number).service_range for number in range(200)}
    assert len(ranges) == 200
    assert Bed("any", 199).service_range == "10.124.112.0/20"


@pytest.mark.parametrize("name", ["", "../up", "Test", "a b", "1st", "x" * 21])
def test_a_name_that_would_not_do_is_refused(name: str) -> None:
    with pytest.raises(BedError, match="does not do"):
        layout.settle(name, None)


def test_an_interrupted_build_leaves_nothing_that_counts() -> None:
    def interrupted(target: Path) -> None:
        (target / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.ensure("thing", "1", interrupted)
    assert not cache.entry("thing", "1").exists()
    path, built = cache.ensure("thing", "1", lambda target: (target / "whole").touch())
    assert built
    assert [child.name for child in path.iterdir()] == ["whole"]
    assert cache.ensure("thing", "1", interrupted) == (path, False)


def test_what_a_killed_build_left_is_cleared_by_the_next() -> None:
    abandoned = cache.entry("x", "y").parent / ".thing-left"
    abandoned.mkdir(parents=True)
    cache.ensure("thing", "1", lambda _: None)
    assert not abandoned.exists()


def test_two_commands_build_once(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time; from bed import cache\n"
        "def build(target):\n"
        "    time.sleep(0.5); open(sys.argv[1], 'a').write('built ')\n"
        "cache.ensure('thing', '1', build)\n"
    )
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }
    commands = [
        subprocess.Popen([sys.executable, "-c", script, str(log)], env=environment)
        for _ in range(2)
    ]
    assert [command.wait() for command in commands] == [0, 0]
    assert log.read_text() == "built "


def _image(text: bytes) -> images.Image:
    content = images.Content(links={"bin/b": "a", "bin/a": "program"}, scratch=("tmp",))
    content.add("bin/program", text, 0o755)
    content.add("etc/z", b"z")
    content.add("etc/a", b"a")
    return images.Image("tether.bed/x:1", ("/bin/program",), lambda: [text], lambda: content)


def test_the_same_image_has_the_same_digest() -> None:
    first = _image(b"one")
    first.ensure()
    archive, digest = first.archive.read_bytes(), first.digest
    files.remove_tree(first.archive.parent)
    second = _image(b"one")
    second.ensure()
    assert (second.archive.read_bytes(), second.digest) == (archive, digest)
    other = _image(b"two")
    other.ensure()
    assert other.digest != digest
    assert other.pinned == f"tether.bed/x@{other.digest}"


def test_a_process_is_told_from_a_later_one_of_the_same_pid() -> None:
    identity = process.Identity.of(os.getpid())
    assert identity is not None
    assert identity != process.Identity(os.getpid(), identity.start + 1)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert process.Identity.of(gone.pid) is None


def test_a_zombie_does_not_count_as_running() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.Identity.of(child.pid) is None
    child.wait()


def test_a_file_is_replaced_whole_and_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert files.write(path, "one", 0o600)
    assert not files.write(path, "one", 0o600)
    assert files.write(path, "two", 0o600)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [child.name for child in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("part", goparts.ALL, ids=lambda part: part.name)
def test_versions_in_the_code_are_those_in_go_mod(part: goparts.GoPart) -> None:
    wanted = {
        "kubernetes": f"k8s.io/kubernetes v{goparts.KUBERNETES_VERSION}",
        "kube-router": f"github.com/cloudnativelabs/kube-router/v2 v{goparts.KUBE_ROUTER_VERSION}",
        "coredns": f"github.com/coredns/coredns v{goparts.COREDNS_VERSION}",
        "pause": "module tether.fleet/testbed/pause",
    }
    assert f"{wanted[part.name]}" in (part.source / "go.mod").read_text()
