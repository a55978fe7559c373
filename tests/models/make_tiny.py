#!/usr/bin/env python3
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write a tiny random model that a real llama-server loads and answers with.

It says nothing of sense, but it says it through every layer: tokenizer, chat template, attention,
sampling. The same seed gives the same bytes on every machine: weights come from integers of a
generator whose sequence numpy froze, and are exact in float32.

Usage: make_tiny.py OUTPUT [--seed N]; prints the file's sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import List, Optional, Tuple

import gguf
import numpy

WIDTH = 64
LAYERS = 2
HEADS = 2
INNER = 128
CONTEXT = 4096
WORDS = 253  # with three special tokens and 256 bytes: 512

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<' + message['role'] + '> ' + message['content'] + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def vocabulary() -> Tuple[List[bytes], List[float], List[int]]:
    """Tokens, scores and kinds: three special ones, all bytes (so any text can be read), words."""
    kinds = gguf.TokenType
    tokens = [b"<unk>", b"<s>", b"</s>"]
    types = [int(kinds.UNKNOWN), int(kinds.CONTROL), int(kinds.CONTROL)]
    tokens += [b"<0x%02X>" % value for value in range(256)]
    types += [int(kinds.BYTE)] * 256
    words = [
        first + vowel + last
        for first in ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"]
        for vowel in "aeiou"
        for last in ("", "l", "n", "r")
    ]
    tokens += [("\u2581" + word).encode() for word in words[:WORDS]]
    types += [int(kinds.NORMAL)] * WORDS
    scores = [0.0] * 259 + [-float(number + 1) for number in range(WORDS)]
    return tokens, scores, types


class Weights:
    """Uniform numbers, exact in float32: multiples of 2**-16."""

    def __init__(self, seed: int) -> None:
        self.random = numpy.random.RandomState(seed)

    def matrix(self, rows: int, columns: int, scale: float) -> numpy.ndarray:
        numbers = self.random.randint(-(2**15), 2**15, size=(rows, columns))
        return (numbers.astype(numpy.float32) / numpy.float32(2**15)) * numpy.float32(scale)


def write(path: Path, seed: int) -> str:
    """Write the model; the name is there only when it is complete.

    :return: sha256 of the file
    """
    tokens, scores, types = vocabulary()
    temporary = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(str(temporary), "llama")
    writer.add_name("tether-tiny-%d" % seed)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)

    weights = Weights(seed)
    ones = numpy.ones(WIDTH, dtype=numpy.float32)
    output = weights.matrix(len(tokens), WIDTH, 0.5)
    # Bytes and <unk> are for reading: with a zero row they are never among the likeliest, so what
    # the model writes is always words and whole UTF-8. The end-of-text row is like a word's.
    output[0:2] = 0
    output[3:259] = 0
    writer.add_tensor("token_embd.weight", weights.matrix(len(tokens), WIDTH, 1.0))
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        block = "blk.%d." % layer
        writer.add_tensor(block + "attn_norm.weight", ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(block + name + ".weight", weights.matrix(WIDTH, WIDTH, 0.25))
        writer.add_tensor(block + "ffn_norm.weight", ones)
        writer.add_tensor(block + "ffn_gate.weight", weights.matrix(INNER, WIDTH, 0.25))
        writer.add_tensor(block + "ffn_up.weight", weights.matrix(INNER, WIDTH, 0.25))
        writer.add_tensor(block + "ffn_down.weight", weights.matrix(WIDTH, INNER, 0.25))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(temporary, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Write a tiny random model for tests.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(write(options.output, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
