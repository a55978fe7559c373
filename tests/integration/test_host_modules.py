# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host modules on a real host: systemd, accounts, nftables and ssh as they are."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any, Dict, Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import host_modules as host

pytestmark = pytest.mark.skipif(
    not (host.SSH_CONFIG and host.HOST),
    reason="no host: set TETHER_TEST_SSH_CONFIG and TETHER_TEST_HOST",
)

FOLDER = "/opt/tether-it"
SOCKET = "/run/tether/it/one/engine.sock"
# An engine in miniature: writes down what it was started with, then answers on a unix socket or a
# port; a reload is a signal.
ENGINE = r"""#!/usr/bin/python3
import http.server, json, os, signal, socket, socketserver, sys, time
wish = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--it-") and "=" in word)
if "--it-dump" in wish:
    with open(wish["--it-dump"], "w") as stream:
        json.dump({"argv": sys.argv[1:], "environ": dict(os.environ)}, stream)
if "--it-die" in wish:
    print("loading model", flush=True)
    time.sleep(float(wish["--it-die"]))
    print("error: no such tensor", file=sys.stderr)
    sys.exit(7)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(wish.get("--it-status", "200")))
        self.end_headers()
        self.wfile.write(b"loading model")
    def address_string(self):
        return "client"
class Server(http.server.HTTPServer):
    address_family = socket.AF_UNIX if "--it-unix" in wish else socket.AF_INET
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "it", 0
signal.signal(signal.SIGHUP, lambda *args: print("reloaded", flush=True))
where = wish["--it-unix"] if "--it-unix" in wish else ("127.0.0.1", int(wish["--it-port"]))
Server(where, Handler).serve_forever()
"""


@pytest.fixture(scope="module", autouse=True)
def _folder() -> Iterator[None]:
    host.install()
    host.ssh("mkdir -p %s && chmod 755 %s" % (FOLDER, FOLDER))
    host.ssh("cat > %s/engine <<'END'\n%sEND\nchmod 755 %s/engine" % (FOLDER, ENGINE, FOLDER))
    accounts = [{"name": "tether-it"}, {"name": "tether-it-b", "groups": ["tether-it"]}]
    assert not host.run("accounts", accounts=accounts).failed
    yield
    for account in accounts:
        account["state"] = "absent"
    assert not host.run("accounts", accounts=accounts).failed
    host.ssh("rm -rf %s %s /run/tether/it" % (FOLDER, host.LIBRARY))


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    assert not host.run("daemon", daemons=[], prune=["tether-it"]).failed
    assert host.ssh("ls /etc/systemd/system | grep tether-it; ls /run/tether/loaded 2>/dev/null"
                    " | grep tether-it; systemctl list-units --all --no-legend 'tether-it*'",
                    check=False) == ""  # fmt: skip


def daemon(name: str = "tether-it-one", *words: str, **more: Any) -> Dict[str, Any]:
    entry = {
        "name": name,
        "argv": [FOLDER + "/engine", "--it-unix=" + SOCKET, *words],
        "user": "tether-it",
        "umask": "0007",
        "runtime_directories": [
            {
                "path": SOCKET.rpartition("/")[0],
                "owner": "tether-it",
                "group": "tether-it-b",
                "mode": "2710",
            }
        ],
        "health": {"unix": SOCKET, "path": "/health", "timeout": 15},
    }
    entry.update(more)
    return entry


def pid(name: str = "tether-it-one") -> str:
    return host.ssh("systemctl show -p MainPID --value " + name).strip()


def test_a_daemon_from_nothing_to_nothing() -> None:
    done = host.converge("daemon", daemons=[daemon()])
    assert done.steps == [
        "create unit tether-it-one.service",
        "enable unit tether-it-one.service",
        "start process tether-it-one.service",
    ]
    facts = done["daemons"]["tether-it-one"]
    assert (facts["healthy"], facts["failed"], facts["changed"]) == (True, False, True)
    found = host.ssh("stat -c '%%U:%%G %%a' %s %s" % (SOCKET.rpartition("/")[0], SOCKET))
    assert found.splitlines() == ["tether-it:tether-it-b 2710", "tether-it:tether-it-b 770"]
    gone = host.converge("daemon", daemons=[{"name": "tether-it-one", "state": "absent"}])
    assert gone.steps == [
        "stop process tether-it-one.service",
        "remove unit tether-it-one.service",
    ]
    assert host.ssh("ls -d %s" % SOCKET.rpartition("/")[0], check=False) == ""


def test_every_word_arrives_as_it_is() -> None:
    words = [
        *("%n", "%%", "%h/%i", "$HOME", "$$", "${PATH}", "$MAINPID", "a$", "$ {x}", "\\$x"),
        *(
            ";",
            "\\;",
            "a;b",
            "&&",
            "|",
            "'",
            '"',
            "''",
            '"a b"',
            "\\",
            "\\\\",
            "\\n",
            "\\x41",
            "\t",
        ),
        *("", " ", "  two  ", "@x", "-x", ":x", "+x", "!x", "#x", "~", "*", "[x", "{a,b}", "`x`"),
        *("{{ 1 + 1 }}", "ü€😀", "\x01\x1b\x7f", "\u2028", "end\\"),
    ]
    values = {"V%d" % i: word for i, word in enumerate(words)}
    path = "/run/tether/it/one/dump.json"
    one = daemon("tether-it-one", "--it-dump=" + path, *words, environment=values)
    # {{ }} is Ansible's own before a module sees it.
    one["argv"].remove("{{ 1 + 1 }}")
    values.pop("V%d" % words.index("{{ 1 + 1 }}"))
    done = host.run("daemon", daemons=[one])
    assert not done.failed, done
    seen = json.loads(host.ssh("cat " + path))
    assert seen["argv"] == one["argv"][1:]
    assert {key: seen["environ"].get(key) for key in values} == values


def test_a_restart_only_when_it_matters() -> None:
    assert not host.run("daemon", daemons=[daemon()]).failed
    first = pid()
    # Text that does not matter to the process.
    done = host.converge("daemon", daemons=[daemon(description="other", after=["ssh.service"])])
    assert done.steps == ["update unit tether-it-one.service"]
    assert pid() == first
    # What somebody put beside the socket does not outlive a restart.
    folder = SOCKET.rpartition("/")[0]
    host.ssh("mkdir -p %s/stale/deep; ln -s /etc %s/link" % (folder, folder))
    done = host.converge("daemon", daemons=[daemon(version="2")])
    assert host.ssh("ls " + folder).split() == ["engine.sock"]
    assert done.steps[-1] == "restart process tether-it-one.service"
    second = pid()
    assert second != first
    # A run that was killed between writing the unit and the restart.
    unit = "/etc/systemd/system/tether-it-one.service"
    wanted = daemon(version="3")
    text = host.run("daemon", check=True, daemons=[wanted])["diff"][0]["after"]
    host.ssh("cat > %s <<'END'\n%sEND\nsystemctl daemon-reload" % (unit, text))
    done = host.converge("daemon", daemons=[wanted])
    assert done.steps == ["restart process tether-it-one.service"]
    # Somebody's kill: systemd brings it back, and nothing is to be done.
    host.ssh("kill -9 %s; sleep 4" % pid())
    assert host.converge("daemon", daemons=[wanted]).steps == []
    # Somebody's stop.
    host.ssh("systemctl stop tether-it-one")
    assert host.converge("daemon", daemons=[wanted]).steps == [
        "start process tether-it-one.service"
    ]


def test_reload_and_restart_files() -> None:
    config = FOLDER + "/config"
    host.ssh("echo one > %s" % config)
    # systemctl reload runs it as the daemon's own account.
    reload_argv = ["/usr/bin/pkill", "-HUP", "-u", "tether-it", "-f", FOLDER + "/engine"]
    wanted = daemon(reload_files=[{"path": config}], reload_argv=reload_argv)
    host.converge("daemon", daemons=[wanted])
    first = pid()
    host.ssh("echo two > %s" % config)
    assert host.converge("daemon", daemons=[wanted]).steps == [
        "reload process tether-it-one.service"
    ]
    assert pid() == first
    # The process restarts by itself after a change: it has read the new content.
    host.ssh("echo three > %s; sleep 2; kill -9 %s; sleep 4" % (config, first))
    assert host.converge("daemon", daemons=[wanted]).steps == []
    # Foretold content: a check says what the run will do once the file is there.
    digest = host.ssh("echo four | sha256sum").split()[0]
    wanted["reload_files"][0]["sha256"] = digest
    foretold = host.run("daemon", check=True, daemons=[wanted]).steps
    assert foretold == ["reload process tether-it-one.service"]
    refused = host.run("daemon", daemons=[wanted])
    assert refused.failed
    assert digest in refused["msg"]
    host.ssh("echo four > %s" % config)
    assert host.converge("daemon", daemons=[wanted]).steps == foretold
    # A reload that fails leaves the process as it is and says so.
    wanted["reload_argv"] = ["/bin/false"]
    host.run("daemon", daemons=[wanted])
    host.ssh("echo five > %s" % config)
    wanted["reload_files"][0].pop("sha256")
    refused = host.run("daemon", daemons=[wanted])
    assert "still runs with the old one" in refused["msg"]


def test_one_that_dies_is_named_at_once_with_its_last_lines_and_others_run() -> None:
    dies = daemon(
        "tether-it-dies",
        "--it-die=1",
        runtime_directories=[],
        argv=[FOLDER + "/engine", "--it-die=1"],
    )
    dies["health"] = {"port": 18123, "path": "/health", "timeout": 60}
    started = time.monotonic()
    done = host.run("daemon", daemons=[dies, daemon()])
    assert time.monotonic() - started < 50  # told by its death, not by the time-out of 60 s
    assert done.failed
    facts = done["daemons"]["tether-it-dies"]
    assert facts["reason"] == "it ended with status 7"
    assert facts["last_lines"] == ["loading model", "error: no such tensor"]
    assert "error: no such tensor" in done["msg"]
    assert done["daemons"]["tether-it-one"]["healthy"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"argv": ["/opt/tether-it/nothing"]}, "there is no program /opt/tether-it/nothing"),
        ({"user": "tether-it-none"}, "there is no account tether-it-none"),
        ({"read_write_paths": ["/opt/tether-it/none"]}, "there is no /opt/tether-it/none"),
        ({"working_directory": "/opt/tether-it/none"}, "no working directory /opt/tether-it/none"),
        ({"argv": ["/etc/hostname"]}, "is not executable"),
    ],
)
def test_what_cannot_start_says_why(change: Dict[str, Any], message: str) -> None:
    refused = host.run("daemon", daemons=[daemon(**change)])
    assert refused.failed
    assert message in refused["msg"]


def test_one_that_never_gets_healthy_says_what_it_answered() -> None:
    wanted = daemon("tether-it-one", "--it-status=503")
    wanted["health"]["timeout"] = 2
    refused = host.run("daemon", daemons=[wanted])
    assert "not healthy after 2 s" in refused["msg"]
    assert "status 503 (loading model)" in refused["msg"]
    # It is not forgotten: the next run looks again although it has nothing to change.
    again = host.run("daemon", daemons=[wanted])
    assert (again.failed, again.steps) == (True, [])


def test_a_port_that_another_holds_is_no_health() -> None:
    port = {"argv": [FOLDER + "/engine", "--it-port=18124"], "runtime_directories": []}
    port["health"] = {"port": 18124, "path": "/health", "timeout": 10}
    other = daemon("tether-it-other", **port)
    assert not host.run("daemon", daemons=[other]).failed
    refused = host.run("daemon", daemons=[other, daemon(**port)])
    assert "of unit tether-it-other.service" in refused["msg"]
    assert refused["daemons"]["tether-it-other"]["healthy"] is True


def test_units_of_others_stay_as_they_are() -> None:
    unit = "/etc/systemd/system/tether-it-theirs.service"
    host.ssh("printf '[Service]\\nExecStart=/bin/true\\n' > %s; systemctl daemon-reload" % unit)
    try:
        for state in ("started", "absent"):
            refused = host.run("daemon", daemons=[daemon("tether-it-theirs", state=state)])
            assert "written by somebody else" in refused["msg"]
        host.ssh("ln -sf /dev/null %s; systemctl daemon-reload" % unit)
        refused = host.run("daemon", daemons=[daemon("tether-it-theirs")])
        assert "systemctl unmask" in refused["msg"]
    finally:
        host.ssh("rm %s; systemctl daemon-reload" % unit)


def test_accounts_are_made_mended_and_removed() -> None:
    wanted = [
        {"name": "tether-it-x", "groups": ["tether-it-y", "video"]},
        {"name": "tether-it-y", "comment": "Another"},
    ]
    try:
        host.converge("accounts", accounts=wanted)
        found = host.ssh("getent passwd tether-it-x; id -nG tether-it-x; passwd -S tether-it-x")
        assert found.splitlines()[0].endswith(":tether.fleet:/nonexistent:/usr/sbin/nologin")
        assert set(found.splitlines()[1].split()) == {"tether-it-x", "tether-it-y", "video"}
        assert found.splitlines()[2].split()[1] == "L"
        host.ssh("echo tether-it-x:secret | chpasswd; usermod -aG audio tether-it-x")
        wanted[0]["groups"] = []
        assert host.converge("accounts", accounts=wanted).steps == [
            "update account tether-it-x",
            "remove membership tether-it-x in tether-it-y",
        ]
        assert set(host.ssh("id -nG tether-it-x").split()) == {"tether-it-x", "video", "audio"}
    finally:
        for entry in wanted:
            entry["state"] = "absent"
        host.converge("accounts", accounts=wanted)


def test_files_as_one_call() -> None:
    base = FOLDER + "/files"
    entries = [
        {"path": base, "state": "directory", "group": "tether-it", "mode": "2750"},
        {"path": base + "/token", "secret_content": "hunter2hunter2", "mode": "0440"},
        {"path": base + "/new", "state": "link", "target": "token"},
    ]
    done = host.converge("files", files=entries)
    assert "hunter2" not in json.dumps(done)
    assert host.ssh("stat -c '%%a %%U:%%G' %s/token" % base).strip() == "440 root:root"
    for entry in entries:
        for key in ("secret_content", "target"):
            entry.pop(key, None)
        entry["state"] = "absent"
    host.converge("files", files=entries)


def test_preflight() -> None:
    wanted: Dict[str, Any] = {"controller_time": time.time(), "port": 0}
    done = host.run("host_preflight", **wanted)
    assert not done.failed, done
    assert (done["platform"], done["supervisor"]) == ("linux-x86_64", "systemd")
    wanted.update(
        controller_time=time.time() - 3600,
        space=[{"path": "/opt", "bytes": 10**15}],
        port=22,
        platforms=["linux-riscv64"],
    )
    refused = host.run("host_preflight", **wanted)
    assert [item["check"] for item in refused["findings"]] == [
        "platform",
        "disk space at /opt",
        "clock",
        "port 22",
    ]
    assert "ssh" in refused["msg"]


@pytest.fixture
def _nft() -> Iterator[None]:
    if not host.ssh("command -v nft", check=False):
        pytest.skip("the host has no nft")
    yield
    host.converge("firewall", state="absent")
    assert "tether" not in host.ssh("nft list tables")
    assert host.ssh("ls /etc/tether/firewall.nft /etc/systemd/system/tether-firewall.service"
                    " /var/lib/tether/firewall.json 2>/dev/null", check=False) == ""  # fmt: skip


@pytest.mark.usefixtures("_nft")
def test_firewall() -> None:
    wanted: Dict[str, Any] = {
        "ingress_sources": ["10.0.0.0/8"],
        "loopback_ports": [{"port": 18125, "accounts": ["tether-it-b"], "server": "tether-it"}],
    }
    done = host.converge("firewall", **wanted)
    assert done.steps == [
        "create file /etc/tether/firewall.nft",
        "create file /etc/systemd/system/tether-firewall.service",
        "enable unit tether-firewall.service",
        "load table inet tether",
    ]
    assert done["session"]["port"] == 22
    load = ["load table inet tether"]
    host.ssh("nft delete table inet tether")
    assert host.converge("firewall", **wanted).steps == load
    host.ssh("nft flush chain inet tether output")
    assert host.converge("firewall", **wanted).steps == load
    # No port 22 in the list: the session's port stays open, wherever the session comes from.
    wanted["open_ports"] = []
    host.converge("firewall", **wanted)
    assert "\t\ttcp dport 22 accept" in host.ssh("nft list table inet tether")
    elsewhere = "192.0.2.7 40000 192.0.2.1 22"
    done = host.run("firewall", ssh_connection=elsewhere, **wanted)
    assert (done.steps, done.failed) == ([], False), done
    # nftables.service flushes everything; ours is back right after it.
    host.ssh("printf 'flush ruleset\\n' > /tmp/tether-it.nft")
    host.ssh("systemctl is-active nftables || true; systemctl restart nftables")
    assert host.converge("firewall", **wanted).steps == []
    host.ssh("systemctl stop nftables; rm /tmp/tether-it.nft")
    # Another table that drops is named, with what to do.
    host.ssh("nft 'add table inet other; add chain inet other in"
             " { type filter hook input priority 0; policy drop; };"
             " add rule inet other in tcp dport 22 accept'")  # fmt: skip
    try:
        refused = host.run("firewall", **wanted)
        assert "chain in of table inet other has policy drop" in refused["msg"]
        assert "nft insert rule inet other in ip saddr 10.0.0.0/8 tcp dport 9443" in refused["msg"]
        assert not host.run("firewall", foreign="ignore", **wanted).failed
    finally:
        host.ssh("nft delete table inet other")
