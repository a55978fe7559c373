# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of llama-server against the real program: set TETHER_LLAMA_SERVER to its path."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from ansible_collections.tether.fleet.plugins.plugin_utils import catalogue, guard

BINARY = os.environ.get("TETHER_LLAMA_SERVER", "")
pytestmark = pytest.mark.skipif(not BINARY, reason="TETHER_LLAMA_SERVER is not set")

ENGINE = catalogue.load()["llama_server"]
TABLE = ENGINE.table
# A flag that exists nowhere: llama.cpp stops at it, so everything before it was taken.
END = "--tether-end"
SAMPLES = {
    "--device": ["none"],
    "--cpu-mask": ["ff", "0xF"],
    "--cpu-range": ["0-1"],
    "--override-tensor": ["foo=CPU"],
    "--sampler-seq": ["edkypmxt"],
    "--reasoning-budget-message": ["that is enough"],
    "--override-kv": [
        "a.b=int:1",
        "tokenizer.ggml.add_bos_token=bool:false,tokenizer.ggml.add_eos_token=bool:true",
        "a.b=float:0.5",
    ],
}


def run(args):
    done = subprocess.run([BINARY, *args], env={}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def offered():
    """All names of --help, each with what stands behind it ('' for a switch)."""
    found = {}
    for line in run(["--help"])[1].splitlines():
        if not re.match(r"-{1,2}[A-Za-z]", line):
            continue
        # The description begins in column 40; a longer head has a line of its own.
        words = (line[:40] if line[39:40] == " " else line).split()
        spelled = []
        while words and re.fullmatch(r"--?[A-Za-z][A-Za-z0-9.-]*,?", words[0]):
            spelled.append(words.pop(0).rstrip(","))
        found.update({name: " ".join(words) for name in spelled})
    assert len(found) > 300
    return found


def samples(flag):
    if flag.type == "switch":
        return []
    if flag.names[0] in SAMPLES:
        return SAMPLES[flag.names[0]]
    if flag.type == "choice":
        # Names of templates are looked up when a model is loaded, not here.
        return flag.choices if len(flag.choices) < 12 else flag.choices[:2]
    if flag.type == "json":
        return ['{"a": true}']
    number = int if flag.type == "int" else float
    values = [str(number(flag.minimum)), str(number(min(flag.maximum, 10**6)))]
    return values + flag.also


def test_the_table_knows_exactly_the_flags_of_this_version(offered):
    assert set(TABLE.by_name) == set(offered)


def test_the_table_knows_which_flags_take_a_value(offered):
    wrong = [
        name
        for name, meta in offered.items()
        if (TABLE.by_name[name].type == "switch") != (meta == "")
    ]
    assert wrong == []


def test_nothing_accepted_names_a_file_or_a_download(offered):
    suspicious = re.compile(r"FILE|FNAME|PATH|URL|DIR|repo|SERVERS|HOST|PORT|TOKEN\b|KEY\b")
    found = {
        name
        for name, meta in offered.items()
        if TABLE.by_name[name].accepted and suspicious.search(meta)
    }
    # KEY=TYPE:VALUE is a key of the model's metadata.
    assert found == {"--override-kv"}
    assert not [n for n in TABLE.by_name if TABLE.by_name[n].accepted and n.endswith("-default")]


def lines():
    """Command lines that together hold every accepted name and every sample value."""
    accepted = [flag for flag in TABLE.flags if flag.accepted]
    longest = max(len(samples(flag)) for flag in accepted)
    for turn in range(max(longest, max(len(flag.names) for flag in accepted))):
        line = []
        for flag in accepted:
            values = samples(flag)
            if turn < max(len(flag.names), len(values)):
                line.append(flag.names[turn % len(flag.names)])
                line += [values[turn % len(values)]] if flag.type != "switch" else []
        yield line


@pytest.mark.parametrize("line", list(lines()) if BINARY else [])
def test_the_engine_takes_what_the_table_accepts(line):
    assert guard.check_arguments(TABLE, line) == []
    code, text = run([*line, END])
    assert code != 0
    assert "invalid argument: %s" % END in text, text[-400:]


def test_the_engine_takes_the_collections_own_arguments():
    slots = {"model": "m", "namespace": "n", "file": "/x/m.gguf", "socket": "/x/e.sock", "port": ""}
    argv = ENGINE.argv(slots, [])[1:]
    assert "invalid argument: %s" % END in run([*argv, END])[1]


@pytest.mark.parametrize("name", ["--ctx-size=1", "--ctx", "--CTX-SIZE", "-ctx_size", "-ctx-size"])
def test_the_engine_refuses_what_the_guard_reads_as_unknown(name):
    assert "invalid argument" in run([name, "1"])[1]
    assert guard.check_arguments(TABLE, [name, "1"])


def test_underscores_are_read_as_dashes():
    assert "invalid argument: %s" % END in run(["--ctx_size", "1", END])[1]


def test_a_value_may_begin_with_a_dash():
    args = ["--reasoning-budget-message", "--host"]
    assert "invalid argument: %s" % END in run([*args, END])[1]
    assert guard.check_arguments(TABLE, args) == []
