# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import grp
import hashlib
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.module_utils import model_store
from ansible_collections.tether.fleet.plugins.module_utils.plan import Plan, Refusal

DATA = b"GGUF" + bytes(1000)
DIGEST = hashlib.sha256(DATA).hexdigest()
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to a group")


class Host:
    def __init__(self, base: Path) -> None:
        self.store, self.incoming = base / "models", base / "incoming"

    def arrive(self, data: bytes = DATA, digest: str = DIGEST) -> None:
        (self.incoming / digest).mkdir(parents=True, exist_ok=True)
        (self.incoming / digest / "data").write_bytes(data)

    def plan(self, *entries: Dict[str, Any], **options: Any) -> Plan:
        desired = {
            "models": list(entries),
            "store": str(self.store),
            "incoming": str(self.incoming),
            "prune": False,
            "verify": False,
        }
        desired.update(options)
        model_store.check_entries(desired["models"])
        return model_store.plan(desired, model_store.observe(desired))

    def run(self, *entries: Dict[str, Any], **options: Any) -> List[str]:
        plan = self.plan(*entries, **options)
        assert model_store.apply(plan) == {}
        return self.steps(plan)

    def steps(self, plan: Plan) -> List[str]:
        return ["%s %s" % (s.action, os.path.relpath(s.name, self.store)) for s in plan.steps]

    def path(self, namespace: str = "a") -> Path:
        return self.store / namespace / DIGEST / "m.gguf"


def entry(namespace: str = "a", **keys: Any) -> Dict[str, Any]:
    return dict(
        {"namespace": namespace, "name": "m.gguf", "sha256": DIGEST, "state": "present"},
        **dict({"size": len(DATA), "group": None}, **keys),
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_from_nothing(host: Host) -> None:
    plan = host.plan(entry())
    assert plan.facts["needs"] == [
        {"sha256": DIGEST, "size": len(DATA), "have": 0, "what": "m.gguf of a"}
    ]
    assert model_store.apply(plan) == {"changed": False}
    assert not host.store.exists()
    host.arrive()
    assert host.plan(entry()).result()["changes"] == plan.result()["changes"]
    assert host.run(entry()) == ["create a/%s/m.gguf" % DIGEST]
    path = host.path()
    assert path.read_bytes() == DATA
    assert [oct(p.stat().st_mode & 0o777) for p in (path, path.parent, path.parent.parent)] == [
        "0o640",
        "0o750",
        "0o750",
    ]
    assert os.listdir(host.incoming) == []
    assert host.run(entry()) == []


def test_two_namespaces_have_two_copies(host: Host) -> None:
    host.arrive()
    host.run(entry("a"), entry("b"))
    assert host.path("b").read_bytes() == DATA
    assert host.path("a").stat().st_ino != host.path("b").stat().st_ino
    assert host.path("a").stat().st_nlink == 1
    assert os.listdir(host.incoming) == []
    # A third one needs no transfer.
    plan = host.plan(entry("a"), entry("b"), entry("c"))
    assert plan.facts["needs"] == []
    host.run(entry("a"), entry("b"), entry("c"))
    assert host.path("c").read_bytes() == DATA


def test_a_copy_that_has_gone_bad_is_passed_over(host: Host) -> None:
    host.arrive()
    host.run(entry("a"))
    host.path("a").write_bytes(b"bad")
    with pytest.raises(Refusal, match="no file in"):
        host.run(entry("b"))
    assert not host.path("b").exists()
    host.arrive()
    host.run(entry("b"))
    assert host.path("b").read_bytes() == DATA


@pytest.mark.parametrize(("data", "quiet"), [(b"GGUX" + bytes(1000), False), (b"short", False)])
def test_other_content_is_found(host: Host, data: bytes, quiet: bool) -> None:
    host.arrive()
    host.run(entry())
    host.path().write_bytes(data)
    plan = host.plan(entry())
    assert host.steps(plan) == ["update a/%s/m.gguf" % DIGEST]
    assert plan.facts["needs"]
    host.arrive()
    host.run(entry())
    assert host.path().read_bytes() == DATA
    assert host.run(entry(), verify=True) == []


def test_other_content_of_the_same_time_is_found_by_verify(host: Host) -> None:
    host.arrive()
    host.run(entry())
    path, times = host.path(), host.path().stat()
    path.write_bytes(b"GGUX" + bytes(1000))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert host.run(entry()) == []
    assert host.plan(entry(), verify=True).changed


def test_a_touched_file_is_read_once(host: Host) -> None:
    host.arrive()
    host.run(entry())
    os.utime(host.path())
    plan = host.plan(entry())
    assert "no manifest that fits" in (plan.steps[0].before or "")
    assert plan.facts["needs"] == []
    host.run(entry())
    assert host.run(entry()) == []


def test_mode_alone_is_mended_without_a_transfer(host: Host) -> None:
    host.arrive()
    host.run(entry())
    host.path().chmod(0o644)
    host.path().parent.chmod(0o755)
    assert host.plan(entry()).facts["needs"] == []
    assert host.run(entry()) == ["update a/%s/m.gguf" % DIGEST]
    assert host.path().stat().st_mode & 0o777 == 0o640
    assert host.path().parent.stat().st_mode & 0o777 == 0o750


@root_only
def test_the_group(host: Host) -> None:
    group = grp.getgrgid(1).gr_name
    host.arrive()
    host.run(entry(group=group))
    assert [p.stat().st_gid for p in (host.path(), host.path().parent)] == [1, 1]
    assert host.run(entry(group=group)) == []
    assert host.run(entry()) == ["update a/%s/m.gguf" % DIGEST]
    assert host.path().stat().st_gid == 0


def test_a_group_that_is_not_there_yet(host: Host) -> None:
    host.arrive()
    plan = host.plan(entry(group="no-such-group"))
    assert plan.changed
    with pytest.raises(Refusal, match="no group no-such-group"):
        model_store.apply(plan)
    assert not host.path().exists()


def test_a_wrong_file_is_refused(host: Host) -> None:
    host.arrive(b"x" * len(DATA))
    with pytest.raises(Refusal, match=DIGEST):
        host.run(entry())
    assert not host.path().exists()
    assert not (host.incoming / DIGEST).exists()


def test_removal_and_prune(host: Host) -> None:
    host.arrive()
    host.run(entry("a"), entry("b"))
    assert host.run(entry("a", state="absent")) == ["remove a/%s/m.gguf" % DIGEST]
    assert sorted(p.name for p in host.store.iterdir()) == [".lock", "b"]
    assert host.run(entry("a", state="absent")) == []
    host.arrive()
    host.run(entry("a"))
    assert host.run(entry("a"), prune=True) == ["remove b/%s/m.gguf" % DIGEST]
    assert host.run(prune=True) == ["remove a/%s/m.gguf" % DIGEST]
    assert [p.name for p in host.store.iterdir()] == [".lock"]


def test_what_a_killed_run_left_is_removed_first(host: Host) -> None:
    host.arrive()
    host.run(entry())
    # Half a copy for another namespace, two in a folder of a digest that is no longer wanted, and
    # folders whose removal was interrupted; where the store has them and where a namespace has.
    places = ["b/%s/.tmp-1" % DIGEST, "c/%s/.tmp-2" % DIGEST, "c/%s/.tmp-3" % DIGEST]
    trees = ["a/.tmp-gone-4", ".tmp-gone-5"]
    for place in [*places, *("%s/tree/.tmp-x" % tree for tree in trees)]:
        path = host.store / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA)
    plan = host.plan(entry("a"), entry("b"))
    assert [step.kind for step in plan.steps] == ["leftover"] * 5 + ["model"]
    assert host.steps(plan) == [
        *("remove " + place for place in reversed(trees)),
        *("remove " + place for place in places),
        "create b/%s/m.gguf" % DIGEST,
    ]
    assert plan.result()["diff"][0] == {
        "prepared": "remove leftover %s\n" % (host.store / ".tmp-gone-5")
    }
    assert model_store.apply(plan) == {}
    assert host.run(entry("a"), entry("b")) == []
    assert sorted(os.listdir(host.store)) == [".lock", "a", "b"]
    assert host.path("a").read_bytes() == host.path("b").read_bytes() == DATA


def test_what_lies_where_others_can_write_is_theirs(host: Host) -> None:
    host.arrive()
    host.run(entry())
    theirs = host.store / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    (theirs / ".tmp-1").touch()
    assert host.run(entry()) == []


def test_one_digest_under_two_names(host: Host) -> None:
    host.arrive()
    pair = [entry(), entry(name="n.gguf")]
    host.run(*pair)
    assert host.run(*pair) == []
    assert host.run(pair[0], prune=True) == ["remove a/%s/n.gguf" % DIGEST]
    assert host.run(pair[0]) == []


def test_a_link_in_the_way(host: Host, tmp_path: Path) -> None:
    host.arrive()
    host.run(entry())
    host.path().unlink()
    host.path().symlink_to(tmp_path / "elsewhere")
    host.arrive()
    host.run(entry())
    assert not host.path().is_symlink()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "keys",
    [
        {"namespace": "../x"},
        {"namespace": "A"},
        {"name": "../x"},
        {"name": "a/b"},
        {"name": ".hidden"},
        {"sha256": "0" * 63},
        {"sha256": "G" * 64},
    ],
)
def test_entries_that_are_refused(keys: Dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        model_store.check_entries([entry(**keys)])


def test_a_file_given_twice() -> None:
    model_store.check_entries([entry(), entry()])
    with pytest.raises(Refusal, match="twice"):
        model_store.check_entries([entry(), entry(group="g")])
