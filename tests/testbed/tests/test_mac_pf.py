# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The emulated pfctl behaves as is known of macOS's.

No Mac runs here and no packet is filtered: each test pins a fact that the emulation must not lose,
with the fact's source.
"""

from __future__ import annotations

import pytest
from mac import pf_rules
from mac.harness import EmulatedMac

NOBODY = 65534
ALTQ = "No ALTQ support in kernel\nALTQ related functions disabled\n"
RULES = """\
# The ingress, and who may reach an engine.
port = "11434"
table <fleet> { 10.99.0.0/24, 192.0.2.7 }
block in quick proto tcp from any to any port 9443
pass in quick proto tcp from <fleet> to any port 9443
block out quick on lo0 proto { tcp, udp } from any to any \\
    port $port user { nobody, 504 }
"""


@pytest.fixture
def anchor(request: pytest.FixtureRequest) -> str:
    """An anchor of the test's own."""
    return f"com.apple/{request.function.__name__}"


def load(mac: EmulatedMac, anchor: str, text: str) -> str:
    """Load an anchor; what `-s rules` then shows."""
    done = mac.run("pfctl", "-a", anchor, "-f", "-", stdin=text)
    assert done.returncode == 0, done.stderr
    return mac.run("pfctl", "-a", anchor, "-s", "rules").stdout


def test_an_anchor_below_com_apple_is_loaded_without_an_edit_of_etc(
    own_mac: EmulatedMac, anchor: str
) -> None:
    """Fact: the stock pf.conf refers to com.apple/*; so `pfctl -a com.apple/NAME -f FILE` is
    enough. Measured on macOS 26: what the main ruleset shows."""
    mac = own_mac
    before = mac.place("/etc/pf.conf").read_text()
    path = mac.root / "rules"
    path.write_text(RULES)
    assert mac.rc("pfctl", "-a", anchor, "-f", str(path)) == 0
    assert mac.place("/etc/pf.conf").read_text() == before
    assert mac.run("pfctl", "-sr").stdout == (
        'scrub-anchor "com.apple/*" all fragment reassemble\nanchor "com.apple/*" all\n'
    )
    assert mac.run("pfctl", "-s", "Anchors").stdout == "  com.apple\n"
    assert mac.run("pfctl", "-a", "com.apple", "-sA").stdout == f"  {anchor}\n"
    assert mac.offences() == []


def test_rules_are_shown_expanded_and_normalised(mac: EmulatedMac, anchor: str) -> None:
    """Source read (OpenBSD's pfctl), and output published of macOS: lists become a rule each,
    accounts numbers, `from any to any` without a port `all`, a block a `block drop`; pass keeps
    state. So live rules are compared with `pfctl -vnf`, not with the file."""
    shown = load(mac, anchor, RULES)
    assert shown.splitlines() == [
        "block drop in quick proto tcp from any to any port = tungsten-https",
        "pass in quick proto tcp from <fleet> to any port = tungsten-https flags S/SA keep state",
        "block drop out quick on lo0 proto tcp from any to any port = 11434 user = 65534",
        "block drop out quick on lo0 proto tcp from any to any port = 11434 user = 504",
        "block drop out quick on lo0 proto udp from any to any port = 11434 user = 65534",
        "block drop out quick on lo0 proto udp from any to any port = 11434 user = 504",
    ]
    checked = mac.run("pfctl", "-a", anchor, "-vnf", "-", stdin=RULES).stdout
    assert checked.endswith(shown)
    assert mac.run("pfctl", "-a", anchor, "-s", "Tables").stdout == "fleet\n"


def test_rules_are_optimized_unless_one_asks_for_none(mac: EmulatedMac, anchor: str) -> None:
    """Source read (OpenBSD's pfctl_optimize.c), pf.conf(5): by default six and more sources of a
    rule become a table, whose name is another one each time."""
    networks = ", ".join(f"10.{number}.0.0/16" for number in range(6))
    rule = f"pass in proto tcp from {{ {networks} }} to any port 9443 no state\n"
    first, second = load(mac, anchor, rule), load(mac, anchor, rule)
    assert first.count("\n") == second.count("\n") == 1
    assert "from <__automatic_" in first != second
    mac.run("pfctl", "-o", "none", "-a", anchor, "-f", "-", stdin=rule)
    shown = mac.run("pfctl", "-a", anchor, "-sr").stdout
    assert shown.count("\n") == 6
    checked = mac.run("pfctl", "-o", "none", "-a", anchor, "-vnf", "-", stdin=rule).stdout
    assert checked.endswith(shown)
    assert mac.rc("pfctl", "-o", "best", "-a", anchor, "-nf", "-") == 1


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("block in all", "block drop in all"),
        ("block return in proto tcp", "block return in proto tcp all"),
        ("pass", "pass all flags S/SA keep state"),
        ("pass in proto icmp all", "pass in proto icmp all keep state"),
        ("pass out quick proto udp all no state", "pass out quick proto udp all no state"),
        (
            "block drop out quick on lo0 proto tcp all user 504",
            "block drop out quick on lo0 proto tcp all user = 504",
        ),
        (
            "pass in inet proto tcp from 10.0.0.0/8 to any port 8000:8010",
            "pass in inet proto tcp from 10.0.0.0/8 to any port 8000:8010 flags S/SA keep state",
        ),
        (
            "pass in proto tcp from ! 2001:db8::1 to any port != 22",
            "pass in inet6 proto tcp from ! 2001:db8::1 to any port != ssh flags S/SA keep state",
        ),
        (
            "pass in proto tcp from any port 5000 to 127.0.0.1 flags any label ours",
            "pass in inet proto tcp from any port = 5000 to 127.0.0.1 flags any keep state"
            ' label "ours"',
        ),
        (
            "block in log quick proto tcp from <a> to <b> group != daemon",
            "block drop in log quick proto tcp from <a> to <b> group != 1",
        ),
        (
            "block in quick on ! lo0 proto tcp all fragment",
            "block drop in quick on ! lo0 proto tcp all fragment",
        ),
        (
            "pass in inet proto icmp all icmp-type echoreq no state",
            "pass in inet proto icmp all icmp-type echoreq no state",
        ),
        ("scrub in on ! lo0 all fragment reassemble", "scrub in on ! lo0 all fragment reassemble"),
    ],
)
def test_single_rules(rule: str, shown: str) -> None:
    """Source read (OpenBSD's pfctl), and output published of macOS."""
    assert pf_rules.parse(rule).rules == [shown]


@pytest.mark.parametrize(
    "text",
    [
        "allow in all",
        "block in al",
        "pass in from",
        "pass in port 22",
        "pass in to any port 22",
        "pass in proto tcp to any port 70000",
        "pass in proto tcp to any port engine",
        "pass in proto tcp to any port $missing",
        "pass in proto sctp all",
        "pass in proto { }",
        "pass in proto tcp from host.example to any",
        "pass in proto tcp from <two words> to any",
        "pass on wlan0 all",
        "pass on { ! wlan0 } all",
        "pass in all\nscrub in all fragment reassemble",
        "scrub in all",
        "pass in proto icmp all icmp-type echoreq",
        "pass in inet proto icmp all icmp-type toobig",
        "pass in proto tcp all user _no_such_account",
        "pass in user root",
        "pass inet from 2001:db8::1 to any",
        "pass in proto tcp all flags X/Y",
        "pass in all keep",
        "table fleet { 10.0.0.1 }",
        "table <fleet> { 10.0.0.300 }",
        "table <a> {}",
        "table <a> { 10.0.0.1 }\ntable <a> { 10.0.0.2 }",
        "set skip on lo0",
        'anchor "x"',
        "nat on en0 from any to any -> en0",
        "pass in all \\",
        "pass in 'all'",
    ],
)
def test_what_is_not_understood_is_a_syntax_error(mac: EmulatedMac, text: str, anchor: str) -> None:
    """pf.conf(5). A file with an error changes nothing (measured: "pf rules not loaded"). Options,
    anchors and translation are right on a Mac; the emulation refuses them as it lacks them."""
    before = load(mac, anchor, "block in all")
    done = mac.run("pfctl", "-a", anchor, "-f", "-", stdin=text)
    assert done.returncode == 1
    assert "stdin:" in done.stderr
    assert "pfctl: Syntax error in config file: pf rules not loaded" in done.stderr
    assert mac.run("pfctl", "-a", anchor, "-s", "rules").stdout == before
    assert mac.rc("pfctl", "-a", anchor, "-nf", "-") == 0


def test_the_line_of_an_error_is_named(mac: EmulatedMac, anchor: str) -> None:
    """Measured: FILE:LINE: syntax error."""
    path = mac.root / "wrong"
    path.write_text("# comment\n\npass in all\nwrong\n")
    done = mac.run("pfctl", "-a", anchor, "-f", str(path))
    assert f"{path}:4: syntax error\n" in done.stderr


def test_altq_lines_are_no_failure(mac: EmulatedMac, anchor: str) -> None:
    """An issue says (wazuh #39189): two lines about ALTQ on standard error, also on success; and a
    note about -f, for an anchor too. Inferred: -n, which opens no device, has only the note."""
    shown = mac.run("pfctl", "-s", "info")
    assert (shown.returncode, shown.stderr) == (0, ALTQ)
    loaded = mac.run("pfctl", "-a", anchor, "-f", "-", stdin="pass in all\n")
    assert loaded.returncode == 0
    assert loaded.stderr.startswith(ALTQ + "pfctl: Use of -f option, could result in flushing")
    checked = mac.run("pfctl", "-a", anchor, "-nf", "-", stdin="pass in all\n")
    assert "ALTQ" not in checked.stderr


def test_the_main_ruleset_cannot_be_loaded_again(own_mac: EmulatedMac) -> None:
    """An issue says (tuist #11425): "cannot define table: Resource busy". It is an offence as
    well."""
    mac = own_mac
    assert mac.rc("pfctl", "-nf", str(mac.place("/etc/pf.conf"))) == 0
    assert mac.offences() == []
    done = mac.run("pfctl", "-f", str(mac.place("/etc/pf.conf")))
    assert done.returncode == 1
    assert "cannot define table: Resource busy" in done.stderr
    assert mac.offences() == ["pfctl"]


def test_tokens(own_mac: EmulatedMac) -> None:
    """Facts: -E prints a token, -X gives it back; the filter stays on while anybody holds one. The
    texts are those of macOS's pfctl (inferred: on standard error); -X of an unknown token fails."""
    mac = own_mac
    assert mac.run("pfctl", "-s", "info").stdout.startswith("Status: Disabled ")
    first = mac.run("pfctl", "-E")
    assert first.returncode == 0
    assert "pf enabled\nToken : " in first.stderr
    second = mac.run("pfctl", "-E")
    assert "pf already enabled\nToken : " in second.stderr
    tokens = [done.stderr.split("Token : ")[1].strip() for done in (first, second)]
    assert tokens[0] != tokens[1]
    assert tokens[0] in mac.run("pfctl", "-s", "References").stdout
    assert "still enabled" in mac.run("pfctl", "-X", tokens[0]).stderr
    assert mac.run("pfctl", "-s", "info").stdout.startswith("Status: Enabled for 0 days ")
    assert mac.rc("pfctl", "-X", tokens[0]) == 1
    assert mac.rc("pfctl", "-X", tokens[1]) == 0
    assert mac.run("pfctl", "-s", "info").stdout.startswith("Status: Disabled ")
    assert mac.offences() == []


def test_a_reboot_takes_rules_and_tokens_away(own_mac: EmulatedMac, anchor: str) -> None:
    """Facts: tokens do not outlive a boot; the filter is off after it, and anchors are empty. So a
    daemon of one's own has to load them."""
    mac = own_mac
    load(mac, anchor, "block in all")
    token = mac.run("pfctl", "-E").stderr.split("Token : ")[1].strip()
    mac.reboot()
    assert mac.run("pfctl", "-s", "info").stdout.startswith("Status: Disabled ")
    assert mac.run("pfctl", "-a", anchor, "-sr").stdout == ""
    assert mac.rc("pfctl", "-X", token) == 1
    assert mac.run("pfctl", "-s", "References").stdout == "No pf starter references held\n"


def test_an_update_of_macos_brings_its_own_pf_conf(own_mac: EmulatedMac) -> None:
    """Fact: /etc/pf.conf is overwritten by updates."""
    mac = own_mac
    path = mac.place("/etc/pf.conf")
    stock = path.read_text()
    path.write_text(stock + 'anchor "ours"\n')
    mac.python("from mac import machine; machine.update('15.7', '24G222')")
    assert path.read_text() == stock
    assert mac.run("sw_vers", "-productVersion").stdout == "15.7\n"


def test_disabling_is_an_offence(own_mac: EmulatedMac) -> None:
    """Fact: never -d; it ends the filter for everybody, whatever tokens they hold."""
    mac = own_mac
    mac.run("pfctl", "-E")
    assert mac.rc("pfctl", "-d") == 0
    assert mac.run("pfctl", "-s", "info").stdout.startswith("Status: Disabled ")
    assert mac.offences() == ["pfctl"]


def test_flushing(own_mac: EmulatedMac, anchor: str) -> None:
    """pfctl(8): -F empties an anchor. Without one it takes what others loaded: an offence.

    Measured: anchors keep their rules then; the main ruleset that leads to them is gone until a
    boot."""
    mac = own_mac
    load(mac, anchor, RULES)
    assert mac.rc("pfctl", "-a", anchor, "-F", "rules") == 0
    assert mac.run("pfctl", "-a", anchor, "-sr").stdout == ""
    assert mac.run("pfctl", "-a", anchor, "-s", "Tables").stdout == "fleet\n"
    assert mac.rc("pfctl", "-a", anchor, "-F", "all") == 0
    assert mac.run("pfctl", "-sA").stdout == "  com.apple\n"
    assert mac.offences() == []
    before = load(mac, anchor, RULES)
    assert mac.rc("pfctl", "-F", "all") == 0
    assert mac.offences() == ["pfctl"]
    assert mac.run("pfctl", "-a", anchor, "-sr").stdout == before
    assert mac.run("pfctl", "-sr").stdout == ""
    check = f"from mac import pf_state; assert pf_state.evaluated({anchor!r}) is {{}}"
    mac.python(check.format(False))
    mac.reboot()
    mac.python(check.format(True))


def test_an_unknown_anchor_is_no_failure(mac: EmulatedMac) -> None:
    """Measured on macOS 27, source read: it complains about DIOCGETRULES, and ends with 0."""
    done = mac.run("pfctl", "-a", "com.apple/never", "-s", "rules")
    assert (done.returncode, done.stdout) == (0, "")
    assert "DIOCGETRULES" in done.stderr


def test_tables(mac: EmulatedMac, anchor: str) -> None:
    """pfctl(8): -t TABLE -T show|add|delete|replace; 255 where there is no such table
    (inferred)."""
    load(mac, anchor, RULES)
    words = ("pfctl", "-a", anchor, "-t", "fleet", "-T")
    assert mac.run(*words, "show").stdout == "   10.99.0.0/24\n   192.0.2.7\n"
    added = mac.run(*words, "add", "192.0.2.7", "192.0.2.8")
    assert "1 addresses added, 0 addresses deleted." in added.stderr
    mac.run(*words, "delete", "192.0.2.7")
    assert mac.run(*words, "show").stdout == "   10.99.0.0/24\n   192.0.2.8\n"
    mac.run(*words, "replace", "10.0.0.0/8")
    assert mac.run(*words, "show").stdout == "   10.0.0.0/8\n"
    assert mac.rc(*words, "add", "nonsense") == 1
    assert mac.rc("pfctl", "-a", anchor, "-t", "none", "-T", "show") == 255


def test_only_root_may_open_the_device(mac: EmulatedMac) -> None:
    """pfctl(8): /dev/pf is root's; -n needs no device (inferred)."""
    done = mac.run("pfctl", "-s", "info", uid=NOBODY)
    assert (done.returncode, done.stderr) == (1, "pfctl: /dev/pf: Permission denied\n")
    assert mac.run("pfctl", "-nf", "-", stdin="", uid=NOBODY).returncode == 0


@pytest.mark.parametrize(
    "words",
    ["", "-z", "-s nonsense", "-F nonsense", "-t fleet", "-T show", "stray", "-a com.apple/* -sr"],
)
def test_other_usage_is_refused(mac: EmulatedMac, words: str) -> None:
    """Options that the emulation lacks fail loudly."""
    assert mac.rc("pfctl", *words.split()) == 1


def test_which_anchors_are_evaluated(own_mac: EmulatedMac) -> None:
    """Fact: the main ruleset refers to com.apple/*, one level below com.apple, as long as nobody
    took that line out of pf.conf."""
    mac = own_mac
    check = "from mac import pf_state; assert pf_state.evaluated({!r}) is {}"
    mac.python(check.format("com.apple/ours", True))
    mac.python(check.format("ours", False))
    mac.python(check.format("com.apple/ours/deeper", False))
    mac.place("/etc/pf.conf").write_text("")
    mac.reboot()
    mac.python(check.format("com.apple/ours", False))
