# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.plugin_utils import catalogue, guard

TABLE = catalogue.load()["llama_server"].table
ACCEPTED = [flag for flag in TABLE.flags if flag.accepted]
REFUSED = [flag for flag in TABLE.flags if not flag.accepted]


def problems(*args):
    return [problem.message for problem in guard.check_arguments(TABLE, list(args))]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--ctx-size", "8192"],
        ["-c", "8192", "-np", "4"],
        # llama.cpp reads _ as - in long names.
        ["--ctx_size", "8192"],
        ["--n-predict", "-1"],
        ["-ngl", "99"],
        ["-ngl", "all"],
        ["--flash-attn", "on", "--no-mmap", "--mlock"],
        ["--cache-type-k", "q8_0", "-ctv", "q4_0"],
        ["--tensor-split", "3,1.5"],
        ["--temp", "0.7", "--top-p", ".95", "--min-p", "0"],
        ["--override-tensor", r"blk\.\d+\.ffn_.*_exps\.=CPU,output=Vulkan0"],
        ["--override-kv", "tokenizer.ggml.add_bos_token=bool:false"],
        ["--chat-template", "chatml", "--chat-template-kwargs", '{"enable_thinking": false}'],
        ["--samplers", "top_k;temperature"],
        ["--embeddings", "--pooling", "mean"],
        ["--reasoning-budget-message", "--host 0.0.0.0"],
    ],
)
def test_accepted(args):
    assert problems(*args) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--ctx-siz", "1"], ["--ctx-siz", "did you mean --ctx-size?", "llama-server 0.10068.0"]),
        (["--ctx-size=1"], ["next argument", '"--ctx-size"', '"1"']),
        (["--ctx"], ["--ctx", "not in the table"]),
        (["--CTX-SIZE", "1"], ["not in the table"]),
        (["-ctx_size", "1"], ["not in the table"]),
        (["--ctx-size"], ["needs a value"]),
        (["--ctx-size", "--mlock"], ["a whole number", '"--mlock"']),
        (["--ctx-size", "5x"], ["a whole number from 0"]),
        (["--ctx-size", "-1"], ["a whole number from 0"]),
        (["--ctx-size", "99999999999"], ["a whole number from 0"]),
        (["--ctx-size", "٣"], ["a whole number"]),
        (["--temp", "nan"], ["a number from 0 to 100"]),
        (["--temp", "1e400"], ["a number"]),
        (["--ctx-size", "1", "-c", "2"], ["-c was given already (as --ctx-size)"]),
        (["--mmap", "--no-mmap"], ["--no-mmap was given already (as --mmap)"]),
        (["--flash-attn", "On"], ["one of on, off, auto"]),
        (["--chat-template", "/etc/passwd"], ["one of bailing"]),
        (["--chat-template-kwargs", "[]"], ["a JSON object"]),
        (["--tensor-split", "3,"], ["a list of values split at ,"]),
        (["--grammar", "root ::= x"], ["--grammar is refused"]),
        (["stray"], ['"stray" is neither a flag']),
        (["--host", "0.0.0.0"], ["--host is set by the collection", "the ingress alone"]),
        (["--host"], ["--host is set by the collection"]),
        (["--api_key", "x"], ["--api_key is set by the collection"]),
        (["-m", "/etc/passwd"], ["-m is set by the collection"]),
        (["--alias", "x"], ["set by the collection"]),
        (["--slots"], ["set by the collection"]),
        (["--rpc", "evil:1"], ["set by the collection", "other machines"]),
        (["--path", "/etc"], ["set by the collection"]),
        (["--log-file", "/x"], ["set by the collection", "journal"]),
        (["--tools", "all"], ["set by the collection"]),
        (["-hf", "a/b"], ["set by the collection", "nothing is downloaded"]),
        (["--lora", "/x"], ["--lora is refused", "a file"]),
        (["--chat-template-file", "/x"], ["refused"]),
        (["--gpt-oss-20b-default"], ["refused", "downloads"]),
        (["--verbose"], ["refused", "prompts"]),
        (["--samplers", "top_k\n"], ["printable"]),
        (["--device", "Vulkan0\x00"], ["printable"]),
        (["--reasoning-budget-message", "x" * 5000], ["at most 4096"]),
    ],
)
def test_refused(args, words):
    found = problems(*args)
    assert len(found) == 1
    for word in words:
        assert word in found[0]


def test_every_mistake_is_found():
    found = guard.check_arguments(
        TABLE, ["--nope", "5", "--host", "x", "--temp", "hot", "--port", "1", "--mlock"]
    )
    assert [problem.key for problem in found] == ["args[0]", "args[2]", "args[4]", "args[6]"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LLAMA_ARG_HOST", "0.0.0.0", ["another spelling of a flag"]),
        ("LLAMA_API_KEY", "x", ["another spelling of a flag"]),
        ("LD_PRELOAD", "/x.so", ["which code runs"]),
        ("HF_TOKEN", "x", ["nothing is downloaded"]),
        ("https_proxy", "x", ["nothing is downloaded"]),
        ("GGML_BACKEND_PATH", "/x.so", ["libraries or files"]),
        ("VK_ICD_FILENAMES", "/x", ["libraries or files"]),
        ("CUDA_VISIBLE_DEVICE", "0", ["did you mean CUDA_VISIBLE_DEVICES?"]),
        ("CUDA_VISIBLE_DEVICES", "all", ["a whole number from 0"]),
    ],
)
def test_environment_refused(name, value, words):
    found = guard.check_environment(TABLE, {name: value})
    assert [problem.key for problem in found] == ["environment.%s" % name]
    for word in words:
        assert word in found[0].message


def test_environment_accepted():
    assert guard.check_environment(TABLE, {"CUDA_VISIBLE_DEVICES": "0,1"}) == []


def read_as_llama_cpp(args):
    """What llama.cpp would take: (name, value) pairs, or None where it would exit."""
    taken, index = [], 0
    while index < len(args):
        name = args[index]
        if name.startswith("--"):
            name = name.replace("_", "-")
        flag = TABLE.by_name.get(name)
        if flag is None:
            return None
        index += 1
        value = None
        if flag.type != "switch":
            if index >= len(args):
                return None
            value, index = args[index], index + 1
        taken.append((flag, value))
    return taken


ANY_NAME = st.sampled_from(sorted(TABLE.by_name))
SPELLED = st.one_of(
    ANY_NAME,
    ANY_NAME.map(lambda name: name.replace("-", "_")),
    ANY_NAME.map(lambda name: "--" + name[2:].replace("-", "_")),
    ANY_NAME.map(str.upper),
    ANY_NAME.map(lambda name: name + "=1"),
    ANY_NAME.map(lambda name: name[:-1]),
    ANY_NAME.map(lambda name: "-" + name),
)
WORD = st.one_of(
    SPELLED, st.sampled_from(["1", "0.5", "on", "auto", "/etc/passwd", "{}", ""]), st.text()
)


@settings(max_examples=400, deadline=None)
@given(st.lists(WORD, max_size=6))
def test_nothing_but_accepted_flags_ever_reaches_the_engine(args):
    if guard.check_arguments(TABLE, args):
        return
    taken = read_as_llama_cpp(args)
    assert taken is not None
    for flag, value in taken:
        assert flag.accepted
        assert value is None or guard.check_value(flag, value) is None


@settings(deadline=None)
@given(st.lists(SPELLED, min_size=1, max_size=4), st.sampled_from(REFUSED))
def test_a_refused_flag_is_always_named(args, flag):
    given_args = ["--mlock", flag.names[-1], *args]
    found = guard.check_arguments(TABLE, given_args)
    assert any(problem.message.startswith(flag.names[-1] + " is ") for problem in found)


@settings(deadline=None)
@given(st.text(), st.sampled_from(ACCEPTED))
def test_values_are_checked_without_an_error(value, flag):
    wrong = guard.check_value(flag, value)
    assert wrong is None or isinstance(wrong, str)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=4))
def test_unknown_variables_are_all_refused(environment):
    found = {problem.key for problem in guard.check_environment(TABLE, environment)}
    unknown = {"environment.%s" % name for name in environment if name not in TABLE.variables}
    assert unknown <= found
