# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files by digest from the depot to a host, in chunks, over Ansible's own connection.

The host's module says what it needs and how much of it is there. A file of one chunk costs a put;
its bytes are taken by the same call that installs it. A longer one goes chunk by chunk, so that a
run that was cut off goes on where it stopped, and the temporary folder never holds
more than a chunk.

A host may have been taken over, so its answer is a wish and no more: only the task's own files are
sent, from where the host says it stands, and what is displayed of them is the task's own text.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import Any, Callable, Dict, Iterable, List, Mapping

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import answer
from ansible_collections.tether.fleet.plugins.plugin_utils.fetch import Progress, Say

CHUNK = 64 * 1024 * 1024
# A host whose files vanish between two calls has another problem than a lost race.
ROUNDS = 3

Locate = Callable[[str, str], str]


def offer(
    entries: Iterable[Dict[str, Any]], title: Callable[[Dict[str, Any]], str]
) -> Dict[str, str]:
    """The files that a task asks a host to have: per digest a text for people."""
    return {entry["sha256"]: title(entry) for entry in entries if entry.get("state") != "absent"}


def run(
    action: ActionBase,
    module: str,
    arguments: Dict[str, Any],
    task_vars: Dict[str, Any],
    offered: Mapping[str, str],
    locate: Locate,
    say: Say,
    chunk_size: int = CHUNK,
) -> Dict[str, Any]:
    """Run a host module; send what it asks for, and run it again.

    :param offered: as ``offer``; nothing else is sent, whatever the host says
    :param locate: from digest and description to the depot's path; raises Refusal
    :return: the module's result, as it would be had all files been there
    """

    def call(extra: Dict[str, Any]) -> Dict[str, Any]:
        return dict(
            action._execute_module(
                module_name=module, module_args=dict(arguments, **extra), task_vars=task_vars
            )
        )

    result = call({})
    for _unused in range(ROUNDS):
        if result.get("failed") or action._task.check_mode or not result.get("needs"):
            break
        sender = _Sender(action, call, say, chunk_size)
        for digest, have in _wishes(result["needs"], offered).items():
            sender.send(digest, have, offered[digest], locate(digest, offered[digest]))
        result = call({"deliver": {"chunks": sender.last, "only": False}})
    else:
        if result.get("needs") and not result.get("failed"):
            raise Refusal(
                ", ".join(offered[digest] for digest in _wishes(result["needs"], offered)),
                "them missing on the host, after they were sent",
                "them to stay there until they are used",
                "See whether another run or a clean-up removes files from the host's incoming "
                "folder",
            )
    result.pop("needs", None)
    return answer.cleaned(result)


def _wishes(needs: Any, offered: Mapping[str, str]) -> Dict[str, Any]:
    """What a host says it needs: per digest what it says is there already.

    :raises Refusal: for whatever the task did not ask that host to have
    """
    wishes: Dict[str, Any] = {}
    for need in needs if isinstance(needs, list) else [needs]:
        digest = need.get("sha256") if isinstance(need, dict) else None
        if not isinstance(digest, str) or digest not in offered or digest in wishes:
            raise _untrusted(
                "files of this task",
                "%s among what the host's answer needs" % _shown(need),
                "nothing but files of this task, each once",
            )
        wishes[digest] = need.get("have")
    return wishes


def _place(have: Any, total: int, what: str) -> int:
    """Where to go on in a file, by the host's word."""
    if not isinstance(have, int) or isinstance(have, bool) or not 0 <= have <= total:
        raise _untrusted(
            what,
            "%s bytes there by the host's answer" % _shown(have),
            "a number from 0 to %d" % total,
        )
    return have


def _untrusted(what: str, found: str, expected: str) -> Refusal:
    return Refusal(
        what,
        found,
        expected,
        "Nothing more is sent to it. Look at that host: no module of this collection answers so, "
        "and it may have been taken over",
    )


def _shown(said: Any) -> str:
    """A part of a host's answer: short, and in characters that a terminal does nothing for."""
    return ascii(said)[:200]


class _Sender:
    """Puts chunks; ``last`` holds those that the installing call is to take."""

    def __init__(
        self,
        action: ActionBase,
        call: Callable[[Dict[str, Any]], Dict[str, Any]],
        say: Say,
        chunk_size: int,
    ) -> None:
        self.action, self.call, self.say, self.chunk_size = action, call, say, chunk_size
        self.last: List[Dict[str, Any]] = []
        self.number = 0

    def send(self, digest: str, have: Any, what: str, path: str) -> None:
        total = os.path.getsize(path)
        offset = _place(have, total, what)
        progress = Progress(what, total, self.say, offset)
        stalls = 0
        while offset < total:
            chunk = self._put(path, digest, offset, min(self.chunk_size, total - offset), total)
            # The host's temporary folder holds a chunk's worth at most.
            waiting = sum(item["size"] for item in self.last)
            if offset + chunk["size"] >= total and waiting + chunk["size"] <= self.chunk_size:
                self.last.append(chunk)
                return
            said = self.call({"deliver": {"chunks": [chunk], "only": True}})
            if said.get("failed"):
                raise FailedError(said)
            there = said.get("have")
            there = _place(there.get(digest) if isinstance(there, dict) else there, total, what)
            # Another run may have sent this chunk first; that is progress too.
            stalls = 0 if there > offset else stalls + 1
            offset = there
            if stalls == ROUNDS:
                raise Refusal(
                    what,
                    "%d bytes on the host, again and again" % offset,
                    "them to grow",
                    "See whether another run removes files from the host's incoming folder",
                )
            progress.at(offset)

    def _put(self, path: str, digest: str, offset: int, size: int, total: int) -> Dict[str, Any]:
        try:
            return self._put_chunk(path, digest, offset, size, total)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Refusal(
                "%d bytes for the temporary folder of the ssh account" % size,
                "no way to write them there (%s)" % " ".join(lines)[-300:],
                "room for that many, in the account's own home",
                "Make room there (df -h), or set ansible_remote_tmp to a folder that has it",
            ) from error

    def _put_chunk(
        self, path: str, digest: str, offset: int, size: int, total: int
    ) -> Dict[str, Any]:
        shell = self.action._connection._shell
        folder = shell.tmpdir or self.action._make_tmp_path()
        self.number += 1
        remote = shell.join_path(folder, "chunk-%d" % self.number)
        if size == total:
            chunk_digest = digest
            self.action._transfer_file(path, remote)
        else:
            with tempfile.NamedTemporaryFile(
                dir=constants.DEFAULT_LOCAL_TMP, prefix="chunk-"
            ) as piece:
                chunk_digest = _slice(path, offset, size, piece)
                self.action._transfer_file(piece.name, remote)
        self.action._fixup_perms2((folder, remote))
        return {
            "file": digest,
            "total": total,
            "offset": offset,
            "size": size,
            "sha256": chunk_digest,
            "path": remote,
        }


class FailedError(Exception):
    """A call of the host's module failed; ``result`` is what it said."""

    def __init__(self, result: Dict[str, Any]) -> None:
        self.result = result
        super().__init__(str(result.get("msg")))


def _slice(path: str, offset: int, size: int, output: Any) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        stream.seek(offset)
        while size:
            block = stream.read(min(size, 1024 * 1024))
            if not block:
                raise Refusal(path, "its end too early", "the size it had", "Run again")
            output.write(block)
            digest.update(block)
            size -= len(block)
    output.flush()
    return digest.hexdigest()
