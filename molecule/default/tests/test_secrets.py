# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where secrets are, and where they are not (P5)."""

from __future__ import annotations

import base64
import json
import re
import subprocess

import pytest
from bed import STATE, get, kubectl, site, ssh, token

HOSTS = ("gpu1", "gpu2")


@pytest.fixture(scope="module")
def tokens():
    found = [token("team-a"), token("team-b")]
    assert all(len(value) >= 43 for value in found)
    return found


def scan(patterns: list[str]) -> str:
    """A shell script that looks for the patterns on a host; they come in a file of root's own."""
    lines = "\n".join(patterns)
    return f"""
umask 077
list=$(mktemp /run/tether-scan.XXXXXX)
cat > $list <<'END'
{lines}
END
echo "## world-readable files"
find / -xdev -type f -perm -o+r -size -5M -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null |
  xargs -d '\\n' grep -lFf $list 2>/dev/null
echo "## units"
grep -rlFf $list /etc/systemd /run/systemd 2>/dev/null
echo "## argv"
for p in /proc/[0-9]*; do
  [ -r $p/cmdline ] && tr '\\0' '\\n' < $p/cmdline 2>/dev/null | grep -qFf $list && echo $p/cmdline
  [ -r $p/environ ] && tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -qFf $list && echo $p/environ
done
echo "## journal"
journalctl -o cat --no-pager 2>/dev/null | grep -cFf $list
echo "## files in all"
find /etc /opt /var /run /tmp /home /root -xdev -type f -size -5M 2>/dev/null |
  xargs -d '\\n' grep -lFf $list 2>/dev/null | grep -v $list
rm -f $list
"""


def sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            current = found.setdefault(line[3:], [])
        else:
            current.append(line)
    return found


@pytest.mark.parametrize("host", HOSTS)
def test_tokens_are_in_their_files_and_nowhere_else(host, tokens):
    found = sections(ssh(host, scan(tokens)).stdout)
    assert found["world-readable files"] == []
    assert found["units"] == []
    assert found["argv"] == []
    assert found["journal"] == ["0"]
    everywhere = [path for path in found["files in all"] if "/journal/" not in path]
    assert everywhere and all(path.startswith("/etc/tether/ingress/tokens/") for path in everywhere)
    for path in everywhere:
        assert ssh(host, f"stat -c '%a %U %G' {path}").stdout.split() == [
            "440",
            "root",
            "tether-ingress",
        ]


@pytest.mark.parametrize("host", HOSTS)
def test_the_private_key_stays_in_its_file(host):
    key = ssh(host, "cat /etc/tether/identity/host.key").stdout.splitlines()[1]
    found = sections(ssh(host, scan([key])).stdout)
    assert found["world-readable files"] == []
    assert found["files in all"] == ["/etc/tether/identity/host.key"]
    done = subprocess.run(
        ["grep", "-rlF", key, str(STATE)], capture_output=True, text=True, check=False
    )
    # The host's own root file system is under the bed's state; nothing else may hold the key.
    assert [
        line
        for line in done.stdout.splitlines()
        if not line.endswith("/etc/tether/identity/host.key")
    ] == []


@pytest.mark.parametrize(
    ("host", "command"),
    [
        ("gpu1", "cat /etc/tether/ingress/tokens/team-a/current"),
        ("gpu1", "cat /etc/tether/identity/host.key"),
        ("gpu1", "cat /etc/tether/ingress/Caddyfile"),
        ("gpu1", "ls /var/lib/tether/models/team-b"),
        ("gpu2", "ls /var/lib/tether/models/team-b"),
        ("gpu1", "ls /run/tether/engines/team-b.small"),
        ("gpu1", "ls /run/tether/ingress"),
    ],
)
def test_an_engines_account_reads_nothing_of_others(host, command):
    account = "setpriv --reuid tether-team-a --regid tether-team-a --init-groups"
    assert ssh(host, command).returncode == 0, "root sees it: it exists"
    done = ssh(host, f"{account} {command}", check=False)
    assert done.returncode != 0 and "Permission denied" in done.stderr


def test_an_engine_cannot_put_a_link_in_its_sockets_place():
    """The ingress follows links with its own rights: to another tenant's engine, say."""
    account = "setpriv --reuid tether-team-a --regid tether-team-a --init-groups"
    folder = "/run/tether/engines/team-a.tiny"
    for command in (
        f"mv {folder}/engine.sock {folder}/x",
        f"rm -f {folder}/engine.sock",
        f"ln -s /run/tether/engines/team-b.small/engine.sock {folder}/x",
    ):
        assert ssh("gpu1", f"{account} {command}", check=False).returncode != 0, command
    assert ssh("gpu1", f"stat -c '%U %G %a' {folder}").stdout.split() == [
        "root",
        "tether-ingress",
        "2710",
    ]


def test_a_stranger_on_the_host_cannot_talk_to_an_engine():
    socket = "/run/tether/engines/team-a.tiny/engine.sock"
    as_root = ssh("gpu1", f"curl -sS -m 10 --unix-socket {socket} http://engine/health")
    assert json.loads(as_root.stdout) == {"status": "ok"}
    for account in ("nobody", "ops"):
        done = ssh(
            "gpu1",
            f"setpriv --reuid {account} --clear-groups --regid nogroup "
            f"curl -sS -m 10 --unix-socket {socket} http://engine/health",
            check=False,
        )
        assert done.returncode != 0, account


def test_relay_logs_and_cluster_objects(tokens):
    encoded = [base64.b64encode(value.encode()).decode() for value in tokens]
    for namespace in ("team-a", "team-b"):
        for pod in get("pods", "-n", namespace)["items"]:
            log = kubectl("logs", "-n", namespace, pod["metadata"]["name"]).stdout
            assert not any(value in log for value in tokens)
    kinds = "configmaps,deployments,services,pods,events,networkpolicies,poddisruptionbudgets"
    text = kubectl("get", kinds, "-A", "-o", "json").stdout
    assert not any(value in text for value in tokens + encoded)


def test_a_rotated_token_shows_in_no_diff_and_no_log(tokens):
    """`--check --diff -vvv` of a real change of secrets: masked on the host and in the cluster."""
    fresh = base64.urlsafe_b64encode(b"tether test token, 32 bytes long").decode().rstrip("=")
    secret = get("secret", "token-team-a", "-n", "tether-fleet")
    patch = {"data": {"current": base64.b64encode(fresh.encode()).decode()}}
    kubectl("patch", "secret", "token-team-a", "-n", "tether-fleet", "-p", json.dumps(patch))
    try:
        done = site("--check", "--diff", "-vvv")
        text = done.stdout + done.stderr
        assert done.returncode == 0, done.stdout[-3000:]
        assert re.search(r"tokens/team-a/current", text), "the diff does name the file"
        for value in [*tokens, fresh]:
            assert value not in text
            assert base64.b64encode(value.encode()).decode() not in text
    finally:
        back = {"data": {"current": secret["data"]["current"]}}
        kubectl("patch", "secret", "token-team-a", "-n", "tether-fleet", "-p", json.dumps(back))


def test_the_cas_key_is_encrypted_and_only_its_owners():
    keys = [
        path
        for path in (STATE / "ca").rglob("*")
        if path.is_file() and "PRIVATE" in path.read_text(errors="ignore")
    ]
    assert keys
    for path in keys:
        assert "ENCRYPTED" in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
    assert kubectl("get", "secrets,configmaps", "-A", "-o", "yaml").stdout.count("PRIVATE KEY") == 0
