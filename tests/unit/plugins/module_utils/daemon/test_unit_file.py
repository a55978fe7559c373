# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, unit_file
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

SPEC = {"daemons": {"type": "list", "elements": "dict", "options": base.ENTRY_SPEC}}
DIGEST = "0" * 64


def entry(**keys):
    wanted = {"name": "tether-x", "argv": ["/bin/true"], **keys}
    checked = ArgumentSpecValidator(SPEC).validate({"daemons": [wanted]})
    assert not checked.error_messages
    return checked.validated_parameters["daemons"][0]


def text_of(**keys):
    item = entry(**keys)
    base.check_entries([item])
    return unit_file.unit_text(item, DIGEST)


def value_of(text, key):
    return re.findall(r"(?m)^%s=(.*)$" % key, text)


# What systemd does to a word of a unit (systemd.syntax(7), systemd.service(5)), written from the
# documentation and not from the renderer.
ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "s": " "}


def unquote_line(line):
    words, index = [], 0
    while index < len(line):
        if line[index] == " ":
            index += 1
            continue
        assert line[index] == '"', "every word is quoted: %r" % line
        index += 1
        word = ""
        while line[index] != '"':
            if line[index] == "\\":
                if line[index + 1] == "x":
                    word += chr(int(line[index + 2 : index + 4], 16))
                    index += 4
                    continue
                word += ESCAPES[line[index + 1]]
                index += 2
                continue
            word += line[index]
            index += 1
        index += 1
        words.append(word)
    return words


def expand(word, with_variables):
    """Specifiers, then variables; any that is left would be read as something else than text."""
    for mark in "%$" if with_variables else "%":
        parts = word.split(mark * 2)
        assert not any(mark in part for part in parts), word
        word = mark.join(parts)
    return word


WORDS = st.text(
    st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), max_size=30
) | st.text(alphabet="%$\\\"';{}@-+!:~ \tnhix07#=\u2028", max_size=12)


@given(st.lists(WORDS, max_size=5))
def test_arguments_arrive_as_they_are(words):
    line = unit_file.command(["/bin/true", *words])
    assert "\n" not in line
    program, _blank, rest = line.partition(" ")
    assert program == "/bin/true"
    assert [expand(word, True) for word in unquote_line(rest)] == words


@given(WORDS)
def test_environment_arrives_as_it_is(value):
    line = value_of(text_of(environment={"KEY": value}), "Environment")[1]
    # Environment= knows no variables: a dollar there stays one.
    assert [expand(word, False) for word in unquote_line(line)] == ["KEY=" + value]


@given(WORDS)
def test_no_text_adds_a_line(value):
    plain = text_of().count("\n")
    assert text_of(argv=["/bin/true", value]).count("\n") == plain
    assert text_of(environment={"A": value}).count("\n") == plain + 1
    assert text_of(description=value).count("\n") == plain


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "x"}, "name must be"),
        ({"name": "tether-../x"}, "name must be"),
        ({"argv": []}, "argv is missing"),
        ({"argv": ["true"]}, "absolute path"),
        ({"argv": ["/bin/../tmp/x"]}, "absolute path"),
        ({"argv": ["/bin/a b"]}, "absolute path"),
        ({"argv": ["/bin/$x"]}, "absolute path"),
        ({"argv": ["/bin/true", "a\nExecStart=/bin/evil"]}, "line break"),
        ({"argv": ["/bin/true", "a\0"]}, "line break"),
        ({"environment": {"A=B": "x"}}, "environment key"),
        ({"environment": {"A": "x\ny"}}, "line break"),
        ({"environment": {"A": ["x"]}}, "must be text"),
        ({"environment": {"TETHER_DIGEST": "x"}}, "environment key"),
        ({"environment": {"HF_TOKEN": "x"}}, "looks like a secret"),
        ({"environment": {"OPENAI_API_KEY": "x"}}, "looks like a secret"),
        ({"user": "a b"}, "name of an account"),
        ({"user": "%u"}, "name of an account"),
        ({"supplementary_groups": ["a b"]}, "name of a group"),
        ({"read_write_paths": ["/a/../b"]}, "without .."),
        ({"runtime_directories": [{"path": "/run/x"}]}, "below /run/tether/"),
        ({"runtime_directories": [{"path": "/run/tether/../x"}]}, "below /run/tether/"),
        ({"runtime_directories": [{"path": "/run/tether/a b"}]}, "below /run/tether/"),
        ({"runtime_directories": [{"path": "/run/tether/a", "mode": "x"}]}, "octal"),
        ({"runtime_directories": [{"path": "/run/tether/a", "seal": "../b"}]}, "plain file name"),
        ({"after": ["x.service\nBefore=y"]}, "name of a unit"),
        ({"capabilities": ["all"]}, "CAP_NAME"),
        ({"address_families": ["any"]}, "AF_NAME"),
        ({"umask": "999"}, "octal"),
        ({"limits": {"memory": "lots"}}, "number"),
        ({"restart": {"delay": -1}}, "negative"),
        ({"description": "a\nb"}, "line break"),
        ({"reload_files": [{"path": "/x"}]}, "reload_argv"),
        ({"restart_files": [{"path": "/x", "sha256": "abc"}]}, "64 hex"),
        ({"health": {}}, "either unix or port"),
        ({"health": {"unix": "/x", "port": 1}}, "either unix or port"),
        ({"health": {"port": 70000}}, "no port"),
        ({"health": {"port": 1, "path": "x y"}}, "health.path"),
        ({"health": {"port": 1}, "type": "oneshot"}, "oneshot"),
    ],
)
def test_what_no_supervisor_could_run_as_meant(keys, message):
    with pytest.raises(Refusal, match=message):
        base.check_entries([entry(**keys)])


def test_all_mistakes_are_said_at_once():
    with pytest.raises(Refusal, match="3 mistakes") as refused:
        base.check_entries([entry(name="a", umask="9"), entry(argv=["x"])])
    assert "tether-x: argv" in str(refused.value)


@pytest.mark.parametrize("key", ["TOKENIZERS_PARALLELISM", "HF_TOKEN_PATH", "MAX_TOKENS"])
def test_keys_that_only_sound_like_secrets(key):
    text_of(environment={key: "x"})


def test_absent_needs_only_a_name():
    base.check_entries([entry(argv=[], state="absent")])


def test_everything_hardened_by_default():
    text = text_of(user="tether-x")
    for line in (
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateDevices=yes",
        "MemoryDenyWriteExecute=yes",
        "SystemCallFilter=@system-service",
        "UMask=0077",
    ):
        assert line in text.splitlines()


def test_gpus_are_seen_only_when_asked_for():
    text = text_of(devices=True, executable_memory=True)
    assert "PrivateDevices" not in text
    assert "DevicePolicy=closed" in text
    assert "DeviceAllow=char-nvidia* rw" in text
    assert "MemoryDenyWriteExecute" not in text


def test_runtime_directories_are_made_afresh_by_root():
    made = {"path": "/run/tether/engines/a.b", "owner": "tether-a", "group": "g", "mode": "2710"}
    text = text_of(runtime_directories=[made])
    assert value_of(text, "ExecStartPre") == [
        "+/usr/bin/install -d -m 0755 /run/tether /run/tether/engines",
        "+/usr/bin/install -d -o root -g root -m 0700 /run/tether/engines/a.b",
        "+/usr/bin/find /run/tether/engines/a.b -mindepth 1 -delete",
        "+/usr/bin/install -d -o tether-a -g g -m 2710 /run/tether/engines/a.b",
    ]
    assert value_of(text, "ReadWritePaths") == ['"-/run/tether/engines/a.b"']


def test_a_sealed_directory_becomes_roots_once_the_socket_is_there():
    made = {"path": "/run/tether/a.b", "owner": "tether-a", "mode": "2710", "seal": "s.sock"}
    post = value_of(text_of(runtime_directories=[made]), "ExecStartPost")
    assert len(post) == 1 and post[0].startswith("+/bin/sh -c ")
    assert "chown root /run/tether/a.b && chmod 0710 /run/tether/a.b" in post[0]
    assert post[0].index("chown") < post[0].index("! -L /run/tether/a.b/s.sock")


@pytest.mark.parametrize(
    ("keys", "same"),
    [
        ({"description": "other"}, True),
        ({"after": ["x.service"]}, True),
        ({"state": "stopped"}, True),
        ({"argv": ["/bin/true", "x"]}, False),
        ({"environment": {"A": "b"}}, False),
        ({"user": "tether-y"}, False),
        ({"version": "2"}, False),
        ({"limits": {"memory": "1G"}}, False),
        ({"restart_files": [{"path": "/x", "sha256": "1" * 64}]}, False),
        ({"reload_files": [{"path": "/x", "sha256": "1" * 64}], "health": {"port": 1}}, True),
    ],
)
def test_only_what_matters_restarts(keys, same):
    before, after = unit_file.wanted_digest(entry()), unit_file.wanted_digest(entry(**keys))
    assert (before == after) is same


def test_contents_count_unless_they_are_foretold(tmp_path):
    path = tmp_path / "config"

    def digest(**more):
        return unit_file.wanted_digest(entry(restart_files=[{"path": str(path), **more}]))

    missing = digest()
    path.write_text("one")
    one = digest()
    path.write_text("two")
    assert len({missing, one, digest()}) == 3
    # In check mode the file is still the old one; the foretold digest gives what the run will see.
    path.write_text("one")
    assert one == digest(sha256=base.file_digest(str(path)))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong(tmp_path):
    path = tmp_path / "tether-x.service"
    path.write_text(
        text_of(
            argv=["/bin/true", "a b", 'q"\\%n $HOME ${X}', ";", "\t"],
            environment={"A": "%h $B \\"},
            user="daemon",
            reload_argv=["/bin/true"],
            runtime_directories=[{"path": "/run/tether/x"}],
            read_write_paths=["/var/lib/a b%n"],
            limits={"memory": "2G", "locked_memory": True},
            restart={"burst": 5, "interval": 60},
            devices=True,
        )
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "tether-x" in line]
    assert about == []


def test_a_login_session_is_for_macs():
    one = entry(session="login", user="me")
    with pytest.raises(Refusal, match="session=login is for macOS"):
        base.check_entries([one], more=unit_file.problems)
