# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated Mac's other programs behave as is known of the real ones.

No Mac runs here: each test pins a fact that the emulation must not lose, with the fact's source.
"""

from __future__ import annotations

import json
import os
import plistlib
import re
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from mac import install
from mac.harness import EmulatedMac

NOBODY = 65534


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("dscl", ". -passwd /Users/x y"),
        ("dscl", ". -list /Computers"),
        ("dscl", ""),
        ("fdesetup", "enable"),
        ("fdesetup", "authrestart"),
        ("lsof", ""),
        ("lsof", "-nP -iTCP"),
        ("lsof", "-w -n -P +c 0 -F pcftn -iUDP:1"),
        ("newsyslog", ""),
        ("newsyslog", "-F"),
        ("plutil", "-replace a -string b x.plist"),
        ("plutil", ""),
        ("pmset", "-a nonsense 1"),
        ("pmset", "-b sleep 0"),
        ("pmset", "-a sleep"),
        ("pmset", "schedule wake"),
        ("profiles", "list"),
        ("ps", "aux"),
        ("socketfilterfw", ""),
        ("socketfilterfw", "--setloggingmode on"),
        ("socketfilterfw", "--setglobalstate maybe"),
        ("softwareupdate", "-i -a"),
        ("sw_vers", "-nonsense"),
        ("sysadminctl", "-secureTokenStatus x"),
        ("sysadminctl", "-addUser x -picture y"),
        ("sysctl", ""),
        ("sysctl", "-a"),
        ("sysctl", "no.such.key"),
        ("system_profiler", "SPDisplaysDataType"),
        ("vm_stat", "1"),
        ("xattr", "-c x"),
    ],
)
def test_what_is_not_emulated_fails_loudly(mac: EmulatedMac, tool: str, words: str) -> None:
    """Nobody shall believe that something was done. (--setloggingmode is gone since macOS 15.4, an
    issue says.)"""
    done = mac.run(tool, *words.split())
    assert done.returncode not in (0, 1) or tool in ("plutil", "sysctl")
    assert done.returncode != 0
    assert done.stderr


def test_sw_vers(mac: EmulatedMac) -> None:
    """Source read (Ansible): `sw_vers -productVersion` is what it asks; two dashes since macOS
    13."""
    assert mac.run("sw_vers", "-productVersion").stdout == "15.6\n"
    assert mac.run("sw_vers", "--buildVersion").stdout == "24G84\n"
    assert "ProductName:\t\tmacOS\n" in mac.run("sw_vers").stdout.replace("    ", "\t")


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that a host's programs are loaded with."""
    library = tmp_path_factory.mktemp("preloaded") / "preloaded.so"
    install.build_preloaded(library)
    return library


def python(preloaded: Path, code: str, *, as_the_host: bool = False) -> str:
    """What a Python prints that is loaded with the library."""
    program = preloaded.with_name("systemd-python") if as_the_host else Path("/usr/bin/python3")
    if as_the_host and not program.exists():
        program.symlink_to("/usr/bin/python3")
    return subprocess.run(
        [str(program), "-ISc", code],
        env={"LD_PRELOAD": str(preloaded)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_uname_answers_as_darwin_does(preloaded: Path) -> None:
    """Tried: with this library in /etc/ld.so.preload, Python's platform says Darwin, arm64.
    Programs that run the host itself are told the truth."""
    code = "import platform; print(platform.system(), platform.release(), platform.machine())"
    assert python(preloaded, code) == "Darwin 24.6.0 arm64\n"
    assert python(preloaded, code, as_the_host=True).startswith("Linux ")


@pytest.mark.parametrize(
    "expression",
    [
        "os.path.exists('/proc/self/stat')",
        "os.path.isdir('/run/lock')",
        "os.path.lexists('/sys')",
        "os.access('/proc', os.R_OK)",
        "os.listdir('/proc')",
        "open('/proc/self/stat').read()",
        "os.open('/proc/self/stat', os.O_RDONLY)",
        "os.readlink('/proc/self/exe')",
    ],
)
def test_folders_of_linux_are_hidden(preloaded: Path, expression: str) -> None:
    """A Mac has no /proc, no /sys and no /run; code that leans on them would pass unnoticed."""
    code = f"""
import os
try:
    print(bool({expression}))
except FileNotFoundError:
    print(False)
"""
    assert python(preloaded, code) == "False\n"
    assert python(preloaded, code, as_the_host=True) == "True\n"


def test_other_files_are_not_hidden(preloaded: Path, tmp_path: Path) -> None:
    """The library keeps its hands off everything else."""
    code = f"""
import os
path = {str(tmp_path / "procession")!r}
with open(path, "w") as stream:
    stream.write("x")
os.chmod(path, 0o640)
os.symlink(path, path + ".link")
print(oct(os.stat(path).st_mode), os.path.getsize(path + ".link"), os.readlink(path + ".link"))
descriptor = os.open(path + ".new", os.O_CREAT | os.O_WRONLY, 0o600)
print(oct(os.fstat(descriptor).st_mode), sorted(os.listdir(os.path.dirname(path))))
"""
    path = tmp_path / "procession"
    first, second = python(preloaded, code).splitlines()
    assert first == f"0o100640 1 {path}"
    assert second == "0o100600 ['procession', 'procession.link', 'procession.new']"


def test_version_file(mac: EmulatedMac) -> None:
    """Source read (Python): platform.mac_ver() reads this file."""
    path = mac.place("/System/Library/CoreServices/SystemVersion.plist")
    assert plistlib.loads(path.read_bytes())["ProductVersion"] == "15.6"


# Power, kernel, disk.


def test_pmset(own_mac: EmulatedMac) -> None:
    """Fact: a headless Mac needs `pmset -a sleep 0 autorestart 1`; a desktop sleeps and stays off
    after a power failure by default. Settings are kept over reboots; only root changes them."""
    mac = own_mac
    shown = mac.run("pmset", "-g", "custom").stdout.split("\n")
    assert f" {'sleep':<20} 1" in shown
    assert f" {'autorestart':<20} 0" in shown
    assert mac.rc("pmset", "-a", "sleep", "0", uid=NOBODY) == 77
    assert mac.rc("pmset", "-a", "sleep", "0", "autorestart", "1") == 0
    mac.reboot()
    shown = mac.run("pmset", "-g").stdout.split("\n")
    assert f" {'sleep':<20} 0" in shown
    assert f" {'autorestart':<20} 1" in shown


def test_the_wired_limit_is_lost_at_a_reboot(own_mac: EmulatedMac) -> None:
    """Facts: iogpu.wired_limit_mb does not outlive a boot, and /etc/sysctl.conf is ignored on Apple
    silicon; so a daemon of root has to set it at each boot."""
    mac = own_mac
    mac.place("/etc/sysctl.conf").write_text("iogpu.wired_limit_mb=40000\n")
    done = mac.run("sysctl", "iogpu.wired_limit_mb=50000")
    assert done.stdout == "iogpu.wired_limit_mb: 0 -> 50000\n"
    assert mac.run("sysctl", "-n", "iogpu.wired_limit_mb").stdout == "50000\n"
    mac.reboot()
    assert mac.run("sysctl", "-n", "iogpu.wired_limit_mb").stdout == "0\n"


@pytest.mark.parametrize(
    ("word", "uid", "says"),
    [
        ("no.such", 0, "sysctl: unknown oid 'no.such'"),
        ("no.such=1", 0, "sysctl: unknown oid 'no.such'"),
        ("hw.memsize=1", 0, "sysctl: oid 'hw.memsize' is read only"),
        ("iogpu.wired_limit_mb=1", NOBODY, "Operation not permitted"),
        ("iogpu.wired_limit_mb=all", 0, "invalid integer"),
    ],
)
def test_sysctl_refusals(mac: EmulatedMac, word: str, uid: int, says: str) -> None:
    """sysctl(8)."""
    done = mac.run("sysctl", word, uid=uid)
    assert done.returncode == 1
    assert says in done.stderr


def test_sysctl_for_ansible(mac: EmulatedMac) -> None:
    """Source read (Ansible's facts of Darwin): nodes are printed whole, as `key: value`; the boot
    time is asked for in binary."""
    shown = mac.run("sysctl", "hw", "machdep", "kern", "hw.model").stdout
    keys = dict(line.split(": ", 1) for line in shown.splitlines())
    for key in ("hw.memsize", "hw.pagesize", "kern.osversion", "kern.osrevision", "hw.logicalcpu"):
        assert keys[key]
    assert keys["machdep.cpu.brand_string"] == "Apple M4 Pro"
    assert keys["machdep.cpu.core_count"] == "12"
    binary = subprocess.run(
        [str(mac.place("/usr/sbin/sysctl")), "-b", "kern.boottime"], capture_output=True, check=True
    ).stdout
    assert struct.unpack("@L", binary[:8])[0] > 1_600_000_000


def test_vm_stat_for_ansible(mac: EmulatedMac) -> None:
    """Source read (Ansible's facts of Darwin): rows end with a full stop."""
    rows = mac.run("vm_stat").stdout.rstrip().split("\n")
    assert "page size of 16384 bytes" in rows[0]
    numbers = {name: int(text.strip(" .")) for name, text in (row.split(":") for row in rows[1:])}
    assert numbers["Pages wired down"] > 0


def test_system_profiler(mac: EmulatedMac) -> None:
    """Source read (Ansible): lines with `key: value`; and JSON."""
    assert "      Chip: Apple M4 Pro\n" in mac.run("system_profiler", "SPHardwareDataType").stdout
    shown = mac.run("system_profiler", "-json", "SPHardwareDataType").stdout
    assert json.loads(shown)["SPHardwareDataType"][0]["chip_type"] == "Apple M4 Pro"


def test_fdesetup(own_mac: EmulatedMac) -> None:
    """Facts: with FileVault daemons wait for somebody after a boot; authrestart covers one
    reboot."""
    mac = own_mac
    assert mac.run("fdesetup", "status").stdout == "FileVault is Off.\n"
    assert mac.rc("fdesetup", "isactive") == 1
    words = ("authrestart", "-delayminutes", "-1", "-inputplist")
    known = plistlib.dumps({"Username": "ops", "Password": "any"}).decode()
    assert mac.run("fdesetup", *words, stdin=known).returncode == 1
    mac.python("from mac import filevault; filevault.turn(True)")
    assert mac.run("fdesetup", "status").stdout == "FileVault is On.\n"
    assert mac.rc("fdesetup", "isactive") == 0
    assert mac.run("fdesetup", "supportsauthrestart").stdout == "true\n"
    mac.daemon("org.boots")
    assert mac.run("fdesetup", *words, stdin="").returncode == 1
    assert mac.run("fdesetup", *words, stdin=known).returncode == 0
    mac.reboot()
    assert mac.rc("launchctl", "print", "system/org.boots") == 0
    mac.reboot()
    assert mac.rc("launchctl", "print", "system/org.boots") == 113


def test_softwareupdate(own_mac: EmulatedMac) -> None:
    """softwareupdate(8): --schedule; and there is never anything new."""
    mac = own_mac
    assert "No new software available." in mac.run("softwareupdate", "--list").stdout
    assert mac.rc("softwareupdate", "--schedule", "off", uid=NOBODY) == 1
    assert mac.run("softwareupdate", "--schedule", "off").stdout.endswith("turned off\n")
    assert mac.run("softwareupdate", "--schedule").stdout.endswith("turned off\n")


def test_profiles(own_mac: EmulatedMac) -> None:
    """profiles(1): whether a device management server manages the Mac."""
    mac = own_mac
    words = ("status", "-type", "enrollment")
    assert "MDM enrollment: No\n" in mac.run("profiles", *words).stdout
    mac.python("from mac import machine; machine.change(managed=True)")
    assert "MDM enrollment: Yes (User Approved)\n" in mac.run("profiles", *words).stdout


# The application firewall.


def program(mac: EmulatedMac, name: str) -> str:
    path = mac.root / name
    path.write_text("first build")
    return str(path)


def blocked(mac: EmulatedMac, path: str) -> bool:
    """Whether other hosts would fail to reach a program."""
    code = f"from mac import app_firewall; import sys; sys.exit(app_firewall.blocks({path!r}))"
    try:
        mac.python(code)
    except subprocess.CalledProcessError:
        return True
    return False


def test_states_of_the_application_firewall(own_mac: EmulatedMac) -> None:
    """Facts: 0 off, 1 on, 2 block all; --getblockall has two wordings; newer versions may add a
    line about stealth mode."""
    mac = own_mac
    ask = lambda word: mac.run("socketfilterfw", word).stdout  # noqa: E731
    assert ask("--getglobalstate") == "Firewall is disabled. (State = 0)\n"
    assert mac.rc("socketfilterfw", "--setglobalstate", "on", uid=NOBODY) == 1
    assert mac.rc("socketfilterfw", "--setglobalstate", "on") == 0
    assert ask("--getglobalstate") == "Firewall is enabled. (State = 1)\n"
    assert ask("--getblockall") == "Firewall has block all state set to disabled.\n"
    assert mac.rc("socketfilterfw", "--setblockall", "on") == 0
    assert "(State = 2)" in ask("--getglobalstate")
    assert ask("--getblockall") == "Firewall has block all state set to enabled.\n"
    mac.python("from mac import machine; machine.change(version='14.7')")
    assert ask("--getblockall") == "Block all ENABLED! \n"
    mac.python("from mac import machine; machine.change(version='26.5')")
    mac.run("socketfilterfw", "--setstealthmode", "on")
    assert len(ask("--getglobalstate").splitlines()) == 2


def test_adding_a_program(own_mac: EmulatedMac) -> None:
    """Facts: what --add says, and that without root it says the same and does nothing; so read
    back. Measured on macOS 27: --getappblocked says "permitted" of programs that are not listed, so
    only --listapps tells."""
    mac = own_mac
    path = program(mac, "engine")
    said = f"Application at path ( {path} ) added to firewall \n"
    assert mac.run("socketfilterfw", "--add", path, uid=NOBODY).stdout == said
    assert path not in mac.run("socketfilterfw", "--listapps").stdout
    permitted = f"Incoming connection to {path} is permitted.\n"
    assert mac.run("socketfilterfw", "--getappblocked", path).stdout == permitted
    assert mac.run("socketfilterfw", "--add", path).stdout == said
    shown = mac.run("socketfilterfw", "--listapps").stdout
    assert shown == (
        f"Total number of apps = 1 \n1 : {path} \n             (Allow incoming connections) \n"
    )
    assert "already" in mac.run("socketfilterfw", "--add", path).stdout
    mac.run("socketfilterfw", "--blockapp", path)
    assert "(Block incoming" in mac.run("socketfilterfw", "--listapps").stdout
    assert "is blocked" in mac.run("socketfilterfw", "--getappblocked", path).stdout
    mac.run("socketfilterfw", "--unblockapp", path)
    assert "(Allow incoming" in mac.run("socketfilterfw", "--listapps").stdout
    mac.python("from mac import machine; machine.change(version='14.7')")
    shown = mac.run("socketfilterfw", "--listapps").stdout
    assert shown.startswith("ALF: total number of apps = 1 \n\n1 :  ")
    assert " \t ( Allow incoming connections ) \n" in shown
    mac.run("socketfilterfw", "--remove", path)
    assert path not in mac.run("socketfilterfw", "--listapps").stdout


def test_a_link_is_added_as_what_it_leads_to(own_mac: EmulatedMac) -> None:
    """Inferred: the firewall knows programs, not links; a `current` link would hide the new
    path."""
    mac = own_mac
    path = program(mac, "engine-1")
    link = mac.root / "current"
    link.symlink_to(path)
    mac.run("socketfilterfw", "--add", str(link))
    assert f" {path} " in mac.run("socketfilterfw", "--listapps").stdout


def test_a_changed_program_is_blocked_without_a_word(own_mac: EmulatedMac) -> None:
    """Fact: a new path, or another signature at the old one, is blocked for other hosts while
    loopback works and the list still says "Allow"; added again it works."""
    mac = own_mac
    path = program(mac, "engine")
    assert not blocked(mac, path)
    mac.run("socketfilterfw", "--setglobalstate", "on")
    assert blocked(mac, path)
    mac.run("socketfilterfw", "--add", path)
    assert not blocked(mac, path)
    Path(path).write_text("second build")
    assert blocked(mac, path)
    assert "(Allow incoming" in mac.run("socketfilterfw", "--listapps").stdout
    mac.run("socketfilterfw", "--remove", path)
    mac.run("socketfilterfw", "--add", path)
    assert not blocked(mac, path)


def test_a_managed_macs_firewall_cannot_be_changed(own_mac: EmulatedMac) -> None:
    """Fact: the answer of a Mac under device management (where it is printed, and the status 0, are
    inferred)."""
    mac = own_mac
    mac.python("from mac import machine; machine.change(managed=True)")
    done = mac.run("socketfilterfw", "--setglobalstate", "on")
    assert done.stdout == (
        "Firewall settings cannot be modified from command line on managed Mac computers.\n"
    )
    assert "(State = 0)" in mac.run("socketfilterfw", "--getglobalstate").stdout
    path = program(mac, "engine")
    mac.run("socketfilterfw", "--add", path)
    assert path not in mac.run("socketfilterfw", "--listapps").stdout


# Accounts.


def test_dscl_makes_an_account(own_mac: EmulatedMac) -> None:
    """dscl(1): a record, then its keys. Inferred: the system knows an account when it has both
    numbers."""
    mac = own_mac
    passwd = mac.place("/etc/passwd")
    for words in (
        ("/Users/_engine",),
        ("/Users/_engine", "UniqueID", "301"),
        ("/Users/_engine", "RealName", "An engine"),
    ):
        assert mac.rc("dscl", ".", "-create", *words) == 0
    assert not passwd.exists() or "_engine" not in passwd.read_text()
    mac.run("dscl", ".", "-create", "/Users/_engine", "PrimaryGroupID", "20")
    assert passwd.read_text() == "_engine:*:301:20:An engine:/var/empty:/usr/bin/false\n"
    mac.run("dscl", ".", "-create", "/Users/_engine", "IsHidden", "1")
    read = lambda *keys: mac.run("dscl", ".", "-read", "/Users/_engine", *keys).stdout  # noqa: E731
    assert read("UniqueID") == "UniqueID: 301\n"
    assert read("RealName") == "RealName:\n An engine\n"
    assert read("IsHidden", "Picture") == "IsHidden: 1\nNo such key: Picture\n"
    assert mac.run("dscl", ".", "-list", "/Users", "UniqueID").stdout.split() == ["_engine", "301"]
    assert "_engine" in mac.run("dscl", ".", "-search", "/Users", "UniqueID", "301").stdout
    assert mac.rc("dscl", ".", "-delete", "/Users/_engine") == 0
    assert passwd.read_text() == ""
    assert mac.rc("dscl", ".", "-read", "/Users/_engine") == 56


def test_dscl_makes_a_group(own_mac: EmulatedMac) -> None:
    """dscl(1): append adds members once, delete with a value takes one away."""
    mac = own_mac
    mac.run("dscl", ".", "-create", "/Groups/_fleet")
    mac.run("dscl", ".", "-create", "/Groups/_fleet", "PrimaryGroupID", "302")
    for name in ("_a", "_b", "_a"):
        mac.run("dscl", ".", "-append", "/Groups/_fleet", "GroupMembership", name)
    assert mac.place("/etc/group").read_text() == "_fleet:*:302:_a,_b\n"
    mac.run("dscl", ".", "-delete", "/Groups/_fleet", "GroupMembership", "_a")
    shown = mac.run("dscl", ".", "-read", "/Groups/_fleet", "GroupMembership").stdout
    assert shown == "GroupMembership: _b\n"


def test_dscl_needs_root_to_change(mac: EmulatedMac) -> None:
    """An issue says: eDSPermissionError, 40."""
    done = mac.run("dscl", ".", "-create", "/Users/_other", uid=NOBODY)
    assert done.returncode == 40
    assert "eDSPermissionError" in done.stderr
    assert mac.rc("dscl", ".", "-read", "/Users/_other") == 56


def test_sysadminctl(own_mac: EmulatedMac) -> None:
    """sysadminctl(8): role accounts. An issue says: it speaks on standard error and ends with 0
    also when it did nothing."""
    mac = own_mac
    words = ("-addUser", "_engine", "-UID", "301", "-roleAccount")
    assert mac.rc("sysadminctl", *words, uid=NOBODY) == 0
    assert mac.rc("dscl", ".", "-read", "/Users/_engine") == 56
    done = mac.run("sysadminctl", *words)
    assert (done.returncode, done.stdout) == (0, "")
    entry = mac.place("/etc/passwd").read_text()
    assert entry == "_engine:*:301:20:_engine:/var/empty:/usr/bin/false\n"
    for refused in (
        ("-addUser", "_engine", "-UID", "302", "-roleAccount"),
        ("-addUser", "_other", "-UID", "301", "-roleAccount"),
        ("-addUser", "engine", "-UID", "303", "-roleAccount"),
        ("-addUser", "_other", "-UID", "600", "-roleAccount"),
        ("-deleteUser", "nobody-of-this-name"),
    ):
        assert mac.rc("sysadminctl", *refused) == 0
        assert mac.place("/etc/passwd").read_text() == entry
    mac.run("sysadminctl", "-addUser", "ann", "-admin")
    assert "ann:*:501:20:ann:/Users/ann:/bin/zsh\n" in mac.place("/etc/passwd").read_text()
    assert mac.place("/etc/group").read_text() == "admin:*:80:ann\n"
    mac.run("sysadminctl", "-deleteUser", "ann")
    assert mac.place("/etc/passwd").read_text() == entry


# Files.


def test_plutil(mac: EmulatedMac) -> None:
    """plutil(1): -lint, -p, -convert."""
    path = mac.root / "a.plist"
    path.write_bytes(plistlib.dumps({"Label": "x", "Args": ["a", 1, True]}))
    assert mac.run("plutil", "-lint", str(path)).stdout == f"{path}: OK\n"
    shown = mac.run("plutil", "-p", str(path)).stdout
    assert shown == (
        '{\n  "Args" => [\n    0 => "a"\n    1 => 1\n    2 => true\n  ]\n  "Label" => "x"\n}\n'
    )
    done = mac.run("plutil", "-convert", "json", "-o", "-", str(path))
    assert json.loads(done.stdout) == {"Label": "x", "Args": ["a", 1, True]}
    assert mac.rc("plutil", "-convert", "binary1", str(path)) == 0
    assert path.read_bytes().startswith(b"bplist")
    assert mac.rc("plutil", "-convert", "xml1", str(path)) == 0
    assert path.read_bytes().startswith(b"<?xml")


def test_plutil_failures(mac: EmulatedMac) -> None:
    """plutil(1): 1 for what is no property list, and for what JSON cannot hold."""
    path = mac.root / "bad.plist"
    path.write_text("<plist><dict>")
    assert mac.rc("plutil", "-lint", str(path)) == 1
    assert mac.rc("plutil", "-lint", str(mac.root / "missing")) == 1
    path.write_bytes(plistlib.dumps({"a": b"data"}))
    assert mac.rc("plutil", "-convert", "json", "-o", "-", str(path)) == 1
    assert mac.rc("plutil", "-convert", "yaml", str(path)) == 1


def test_quarantine(mac: EmulatedMac) -> None:
    """xattr(1): the mark of a download can be read and taken away."""
    path = str(mac.root / "download")
    Path(path).touch()
    assert mac.rc("xattr", "-p", "com.apple.quarantine", path) == 1
    assert mac.rc("xattr", "-w", "com.apple.quarantine", "0083;0;Safari;", path) == 0
    assert "user.com.apple.quarantine" in os.listxattr(path)
    assert mac.run("xattr", path).stdout == "com.apple.quarantine\n"
    assert mac.rc("xattr", "-d", "com.apple.quarantine", path) == 0
    assert mac.run("xattr", path).stdout == ""


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("/var/log/fleet.log 640 7 10240 * JN", True),
        ("/var/log/fleet.log nobody:daemon 640 7 * $D0 J /var/run/x.pid 30", True),
        ("/var/log/fleet.log :wheel_ 640 7 * $D0 J", False),
        ("/var/log/fleet.log 640 7 10240", False),
        ("fleet.log 640 7 10240 *", False),
        ("/var/log/fleet.log 689 7 10240 *", False),
        ("/var/log/fleet.log 640 many 10240 *", False),
        ("/var/log/fleet.log 640 7 10240 daily", False),
        ("/var/log/fleet.log 640 7 10240 * QQ", False),
        ("/var/log/fleet.log 640 7 10240 * J x.pid", False),
        ("/var/log/fleet.log 640 7 10240 * J /x.pid 30 more", False),
    ],
)
def test_newsyslog_checks_its_configuration(mac: EmulatedMac, line: str, good: bool) -> None:
    """newsyslog.conf(5); -nv reads it and does nothing."""
    path = mac.place("/etc/newsyslog.d/fleet.conf")
    path.write_text(f"# comment\n{line}\n")
    done = mac.run("newsyslog", "-nv")
    path.unlink()
    assert (done.returncode == 0) == good
    if good:
        assert "/var/log/fleet.log <7" in done.stdout
    else:
        assert f"{path}:2" in done.stderr


# The host of a bed.


def test_a_hosts_disk_becomes_an_emulated_mac(tmp_path: Path) -> None:
    """What `install.host` leaves on the disk of a Debian host: names of groups as macOS has them,
    programs at their real paths even where a folder is a link, programs that no Mac has put
    aside, the preloaded library, the unit."""
    for name in ("usr/bin", "usr/sbin", "usr/lib", "etc/systemd/system", "run", "var"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "sbin").symlink_to("usr/sbin")
    (tmp_path / "etc/group").write_text(
        "root:x:0:\ndaemon:x:1:\ndialout:x:20:\nstaff:x:50:\nssh:x:101:\n"
    )
    for name in ("useradd", "systemctl", "ssh", "stat"):
        (tmp_path / "usr/bin" / name).touch()
    (tmp_path / "usr/sbin/reboot").symlink_to("/bin/systemctl")
    install.host(tmp_path)
    assert (tmp_path / "etc/group").read_text() == (
        "wheel:*:0:\ndaemon:*:1:\neveryone:*:12:\nstaff:*:20:\nadmin:*:80:\nssh:x:101:\n"
    )
    for path in install.PROGRAMS.values():
        assert os.access(tmp_path / path, os.X_OK)
    assert (tmp_path / "etc/ld.so.preload").read_text() == "/usr/lib/emulated-mac/preloaded.so\n"
    assert (tmp_path / "usr/lib/emulated-mac/preloaded.so").exists()
    aside = tmp_path / "usr/lib/emulated-mac/linux"
    assert {path.name for path in aside.iterdir()} == {"useradd", "systemctl"}
    assert os.readlink(tmp_path / "usr/sbin/reboot") == "/usr/lib/emulated-mac/linux/systemctl"
    assert {"ssh", "stat"} <= {path.name for path in (tmp_path / "usr/bin").iterdir()}
    unit = tmp_path / "etc/systemd/system/multi-user.target.wants/emulated-launchd.service"
    assert os.readlink(unit) == "/etc/systemd/system/emulated-launchd.service"
    assert "com.apple/*" in (tmp_path / "etc/pf.conf").read_text()


def test_who_listens_where(mac: EmulatedMac, tmp_path: Path) -> None:
    """lsof(8), "OUTPUT FOR OTHER PROGRAMS": a field a line; 1 where there is nothing."""
    fields = ["-w", "-n", "-P", "+c", "0", "-F", "pcftn"]
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        port = tcp.getsockname()[1]
        words = [*fields, f"-iTCP:{port}", "-sTCP:LISTEN"]
        done = mac.run("lsof", *words)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
        tcp.listen()
        lines = mac.run("lsof", *words).stdout.splitlines()
        assert lines[0] == f"p{os.getpid()}"
        assert lines[2:] == [f"f{tcp.fileno()}", "tIPv4", f"n127.0.0.1:{port}"]
        with socket.create_connection(("127.0.0.1", port)) as client, tcp.accept()[0]:
            lines = mac.run("lsof", *words[:-1], "-sTCP:ESTABLISHED").stdout.splitlines()
            near = f"127.0.0.1:{client.getsockname()[1]}"
            names = {f"n127.0.0.1:{port}->{near}", f"n{near}->127.0.0.1:{port}"}
            assert {line for line in lines if line[0] == "n"} == names
        unix.bind(str(tmp_path / "x.sock"))
        unix.listen()
        lines = mac.run("lsof", *fields, "-U").stdout.splitlines()
        at = lines.index(f"n{tmp_path / 'x.sock'}")
        assert lines[at - 2 : at] == [f"f{unix.fileno()}", "tunix"]


def test_processes(mac: EmulatedMac) -> None:
    rows = [line.split() for line in mac.run("ps", "-axo", "pid=,ppid=").stdout.splitlines()]
    assert [str(os.getpid()), str(os.getppid())] in rows
    said = mac.run("ps", "-o", "lstart=", "-p", str(os.getpid()))
    assert re.fullmatch(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4} +\n", said.stdout)
    assert mac.rc("ps", "-o", "lstart=", "-p", str(2**31)) == 1
