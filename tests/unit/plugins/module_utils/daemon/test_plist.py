# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import plistlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launchd_entries import entry

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, plist
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

DIRECTORY = {
    "path": "/var/lib/tether/run/engines/a.b",
    "owner": "tether-a",
    "group": "tether-ingress",
    "mode": "2710",
    "seal": "engine.sock",
}


def made(**keys):
    return plist.wanted(entry(**keys))


def check(*entries):
    base.check_entries(list(entries), plist.RUNTIME_ROOT, plist.problems)


def test_an_engine():
    found = made(
        argv=["/opt/tether/x/current/x", "--port", "1"],
        user="tether-a",
        group="tether-a",
        environment={"OMP": 4},
        umask="0027",
        working_directory="/var/lib/tether/x",
        stop_timeout=20,
    )
    assert found == {
        "Label": "tether-x",
        "ProgramArguments": ["/opt/tether/x/current/x", "--port", "1"],
        "EnvironmentVariables": {
            "HOME": "/var/lib/tether/x",
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "OMP": "4",
        },
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 2,
        "ProcessType": "Interactive",
        "ExitTimeOut": 20,
        "Umask": 0o27,
        "UserName": "tether-a",
        "GroupName": "tether-a",
        "WorkingDirectory": "/var/lib/tether/x",
        "SoftResourceLimits": {"NumberOfFiles": 65536},
        "HardResourceLimits": {"NumberOfFiles": 65536},
        "StandardOutPath": "/var/log/tether/tether-x.log",
        "StandardErrorPath": "/var/log/tether/tether-x.log",
    }


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"restart": {"policy": "on-failure"}}, {"KeepAlive": {"SuccessfulExit": False}}),
        ({"restart": {"policy": "no"}}, {"KeepAlive": None, "ThrottleInterval": 2}),
        # 0 is ignored by launchd.
        ({"restart": {"delay": 0}}, {"ThrottleInterval": 1, "KeepAlive": True}),
        ({"type": "oneshot"}, {"KeepAlive": None, "ProcessType": None, "RunAtLoad": True}),
        ({"user": "root", "group": "root"}, {"UserName": "root", "GroupName": "wheel"}),
        ({}, {"UserName": None, "GroupName": None, "WorkingDirectory": None}),
        ({"session": "login", "user": "me"}, {"UserName": None, "GroupName": None}),
    ],
)
def test_keys_follow_the_entry(keys, wanted):
    found = made(**keys)
    assert {key: found.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("keys", "home"),
    [
        ({}, "/var/root"),
        ({"user": "tether-a"}, "/var/empty"),
        ({"user": "tether-a", "environment": {"HOME": "/x"}}, "/x"),
    ],
)
def test_home_and_path_are_always_said(keys, home):
    found = made(**keys)["EnvironmentVariables"]
    assert found["HOME"] == home
    assert found["PATH"] == "/usr/bin:/bin:/usr/sbin:/sbin"
    assert plist.wanted(entry(**keys), "/Users/me")["EnvironmentVariables"]["HOME"] in (
        home if "environment" in keys else "/Users/me",
    )


def test_what_only_narrows_changes_nothing():
    plain = made()
    assert plain == made(
        after=["ssh.service"],
        read_only_paths=["/etc"],
        read_write_paths=["/var"],
        inaccessible_paths=["/home"],
        address_families=["AF_UNIX"],
        devices=True,
        executable_memory=True,
        description="for people",
    )


WORDS = ["a&b", "<b>", "]]>", "]]", "'", '"', "&amp;", "&#1;", "<!--", "-->", "--", "$HOME", "${x}"]
WORDS += [
    "%n",
    "\t",
    " ",
    "  two  ",
    "",
    "ü€😀",
    "\u2028",
    "\x7f",
    "\x85",
    "end\\",
    "<?x?>",
    "{a,b}",
]
# What a plist can hold and a daemon may be given.
TEXT = st.text(
    st.characters(
        exclude_characters="\n\r\ufffe\uffff",
        exclude_categories=["Cs"],
        min_codepoint=0x20,
    ),
    max_size=30,
) | st.sampled_from(WORDS)


def test_words_of_markup_are_text():
    found = made(argv=["/bin/x", *WORDS], environment={"V%d" % i: w for i, w in enumerate(WORDS)})
    check(entry(argv=["/bin/x", *WORDS]))
    assert plist.parse(plist.text(found).encode()) == found


@given(st.lists(TEXT), st.dictionaries(st.sampled_from("ABC"), TEXT))
def test_every_word_arrives(words, variables):
    one = entry(argv=["/bin/x", *words], environment=variables)
    check(one)
    text = plist.text(plist.with_digest(plist.wanted(one), "0" * 64))
    read = plistlib.loads(text.encode())
    assert read["ProgramArguments"] == ["/bin/x", *words]
    variables = dict(variables, TETHER_DIGEST="0" * 64)
    assert {key: read["EnvironmentVariables"][key] for key in variables} == variables


@pytest.mark.parametrize("char", ["\x01", "\x08", "\x0b", "\x1b", "\x1f", "\ufffe", "\uffff"])
def test_what_xml_cannot_hold_is_refused(char):
    with pytest.raises(Refusal) as caught:
        check(
            entry(
                argv=["/bin/x", char],
                environment={"V": char},
                working_directory="/x" + char,
                reload_argv=["/bin/x", char],
            )
        )
    said = str(caught.value)
    for what in ("argv[1]", "reload_argv[1]", "environment V", "working_directory"):
        assert "tether-x: %s holds a control character" % what in said


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"user": "a", "capabilities": ["CAP_NET_BIND_SERVICE"]}, "a port from 1024 on"),
        ({"limits": {"memory": "8G"}}, "nothing limits a process's memory"),
        ({"session": "login"}, "needs user"),
        ({"session": "login", "user": "me", "group": "staff"}, "leave groups out"),
        ({"runtime_directories": [dict(DIRECTORY, path="/run/tether/x")]}, "/var/lib/tether/run/"),
        (
            {"runtime_directories": [DIRECTORY, dict(DIRECTORY, path=DIRECTORY["path"] + "/in")]},
            "is in another one",
        ),
    ],
)
def test_what_matters_and_cannot_be_is_refused(keys, message):
    with pytest.raises(Refusal, match=message):
        check(entry(**keys))


def test_directories_of_other_daemons_are_not_nested_either():
    outer = entry(name="tether-outer", runtime_directories=[DIRECTORY])
    inner = entry(runtime_directories=[dict(DIRECTORY, path=DIRECTORY["path"] + "/in")])
    assert plist.problems(inner) == []
    assert "is in another one" in plist.problems(inner, [outer, inner])[0]
    assert plist.problems(outer, [outer, inner]) == []
    assert plist.problems(inner, [dict(outer, state="absent"), inner]) == []


def test_what_is_absent_needs_to_make_no_sense():
    check(entry(state="absent", limits={"memory": "8G"}))
    check(entry(capabilities=["CAP_NET_BIND_SERVICE"]))  # root has it anyway


def test_runtime_directories_are_emptied_before_the_program(tmp_path):
    """The start's few words of shell, run as they are: here too they are all that is there."""
    folder = tmp_path / "engines" / "a.b"
    folder.mkdir(parents=True)
    for stale in ("engine.sock", "x y", "-rf"):
        (folder / stale).write_text("")
    (folder / "deep" / "er").mkdir(parents=True)
    (tmp_path / "keep").write_text("")
    (folder / "link").symlink_to(tmp_path)
    one = entry(
        argv=["/bin/echo", "$HOME", "--", "a b", "*"],
        runtime_directories=[dict(DIRECTORY, path=str(folder)), dict(DIRECTORY, path="/nowhere")],
    )
    argv = plist.wanted(one)["ProgramArguments"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "$HOME -- a b *\n"
    assert list(folder.iterdir()) == []
    assert (tmp_path / "keep").exists()


def test_runtime_directories_are_found_again():
    found = made(runtime_directories=[DIRECTORY])
    assert plist.runtime_directories(found) == [DIRECTORY["path"]]
    assert plist.runtime_directories(made(argv=["/bin/x", "/var/lib/tether/run/x", "--"])) == []
    root = "/var/lib/tether/run/"
    for spoilt in (
        "/etc",
        root + "../../x",
        root,
        root[:-1],
        root + "a/.",
        root + "a/..",
        root * 2,
    ):
        found["ProgramArguments"][4] = spoilt
        assert plist.runtime_directories(found) == []
    assert plist.runtime_directories({"ProgramArguments": "x"}) == []
    assert plist.runtime_directories(None) == []


def test_the_same_meaning_is_the_same_text():
    found = plist.with_digest(made(), "1" * 64)
    reordered = dict(reversed(list(found.items())))
    assert plist.text(found) == plist.text(reordered)
    for data in (plistlib.dumps(reordered), plistlib.dumps(found, fmt=plistlib.FMT_BINARY)):
        assert plist.shown(data) == plist.text(found)
    # 1 is no true, though Python takes it for the same.
    assert plist.shown(plistlib.dumps(dict(found, KeepAlive=1))) != plist.text(found)
    assert plist.text(found).splitlines()[2] == "<!-- %s -->" % plist.MARK


@pytest.mark.parametrize(
    ("data", "ours"),
    [
        (plistlib.dumps({"EnvironmentVariables": {"TETHER_DIGEST": "x"}}), True),
        (
            plistlib.dumps(
                {"EnvironmentVariables": {"TETHER_DIGEST": "x"}}, fmt=plistlib.FMT_BINARY
            ),
            True,
        ),
        (plist.text({"Label": "x"}).encode()[:-20], True),  # damaged, with our comment
        (plistlib.dumps({"Label": "tether-x", "EnvironmentVariables": {"A": "b"}}), False),
        (plistlib.dumps({"EnvironmentVariables": ["TETHER_DIGEST"]}), False),
        (plistlib.dumps(["TETHER_DIGEST"]), False),
        (b"", False),
        (b"\xff\xfe<plist>", False),
        (b"bplist00garbage", False),
    ],
)
def test_whose_a_plist_is(data, ours):
    assert plist.is_ours(data) is ours
    assert isinstance(plist.shown(data), str)


@given(st.binary(max_size=60).map(lambda tail: b"bplist00" + tail) | st.binary(max_size=60))
def test_no_file_is_too_odd(data):
    assert plist.parse(data) is None or isinstance(plist.parse(data), dict)
    assert isinstance(plist.shown(data), str)


def test_a_plist_that_holds_itself_is_shown():
    # {"A": the dictionary itself}
    objects = b"\xd1\x01\x00" + b"\x51A"
    offsets, trailer = bytes([8, 11]), bytes(6) + b"\x01\x01"
    numbers = b"".join(number.to_bytes(8, "big") for number in (2, 0, 13))
    data = b"bplist00" + objects + offsets + trailer + numbers
    assert plist.parse(data)["A"] is not None
    assert isinstance(plist.shown(data), str)
    assert not plist.names_us(data)


def test_a_digest_stands_for_everything_that_is_read_at_a_start(tmp_path):
    config = tmp_path / "c"
    config.write_text("1")

    def digest(**keys):
        one = entry(**{"restart_files": [{"path": str(config)}], **keys})
        return plist.wanted_digest(one, plist.wanted(one))

    first = digest()
    assert first == digest(description="other", read_only_paths=["/etc"])
    changed = [digest(version="2"), digest(argv=["/bin/false"]), digest(user="tether-a")]
    config.write_text("2")
    changed.append(digest())
    assert len({first, *changed}) == 5
