# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sources of the depot: a URL, a wheel of the configured package index, a file.

Each function fills one local file and proves nothing about it: the depot reads it whole and
compares its digest afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
from typing import Any, Callable, Dict, List, Optional

from ansible.module_utils.urls import ConnectionError as ClientError
from ansible.module_utils.urls import open_url

from ansible_collections.tether.fleet.plugins.module_utils import disk
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

TRIES = 4
# An engine's download may stall for a while behind a slow proxy; silence this long is a dead one.
TIMEOUT = 60
PROGRESS_SECONDS = 4.0

Say = Callable[[str], None]


class Progress:
    """Says how far a long transfer is: one line every few seconds, none for a short one."""

    def __init__(self, title: str, total: Optional[int], say: Say, start: int = 0) -> None:
        self.title, self.total, self.say = title, total, say
        self.begun = self.last = time.monotonic()
        self.start = start

    def at(self, count: int) -> None:
        now = time.monotonic()
        if now - self.last < PROGRESS_SECONDS or count <= self.start:
            return
        self.last = now
        rate = max(count - self.start, 0) / max(now - self.begun, 0.001)
        done = "" if not self.total else "%d %% of " % (100 * count // self.total)
        size = disk.human(self.total if self.total else count)
        self.say("%s: %s%s, %s/s" % (self.title, done, size, disk.human(rate)))


def public_url(url: str) -> str:
    """The URL without passwords and without the query, which may hold a signature."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rsplit("@", 1)[-1]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def from_url(url: str, path: str, size: Optional[int], what: str, say: Say) -> None:
    """Download, going on where an earlier try stopped if the server can.

    :raises Refusal: for a network error (what has arrived is kept), a wrong length, a full disk
    """
    trouble = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(min(2**attempt, 8))
            say("%s: trying again (%s)" % (what, trouble))
        start = os.path.getsize(path) if os.path.exists(path) else 0
        if size is not None and start > size:
            os.truncate(path, 0)
            start = 0
        if size is not None and start == size:
            return
        try:
            _download(url, path, start, size, what, say)
            return
        except urllib.error.HTTPError as error:
            trouble = "HTTP %d %s" % (error.code, error.reason)
            if error.code == 416:  # what is here does not fit what the server has
                os.truncate(path, 0)
            elif error.code < 500 and error.code not in (408, 429):
                break
        except _TooLongError as error:
            raise Refusal(
                what, str(error), "%d bytes" % (size or 0), "Check size and URL"
            ) from error
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise disk.no_space(what, path, size or 0, disk.free_bytes(path)) from error
            trouble = str(getattr(error, "reason", None) or error)
        except (http.client.HTTPException, ClientError, ValueError) as error:
            trouble = str(error) or type(error).__name__
    kept = os.path.getsize(path) if os.path.exists(path) else 0
    raise Refusal(
        what,
        "%s from %s" % (trouble, public_url(url)),
        "a download",
        "Check the network, the proxy and the URL, then run again%s"
        % (": %s that have arrived are kept" % disk.human(kept) if kept else ""),
    )


class _TooLongError(Exception):
    pass


def _download(url: str, path: str, start: int, size: Optional[int], what: str, say: Say) -> None:
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = "bytes=%d-" % start
    # Ansible's own client: proxies, certificates and .netrc as everywhere else in a playbook.
    response = open_url(url, headers=headers, timeout=TIMEOUT, decompress=False)
    with contextlib.closing(response):
        if response.status != 206:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        if size is not None and total is not None and total != size:
            raise _TooLongError("a length of %d bytes at %s" % (total, public_url(url)))
        progress = Progress(what, size or total, say, start)
        with open(path, "r+b" if os.path.exists(path) else "wb") as output:
            output.seek(start)
            output.truncate()
            count = start
            while True:
                block = response.read(256 * 1024)
                if not block:
                    break
                count += len(block)
                if size is not None and count > size:
                    raise _TooLongError("more than %d bytes at %s" % (size, public_url(url)))
                output.write(block)
                progress.at(count)
        expected = size if size is not None else total
        if expected is not None and count < expected:
            raise OSError("the connection ended after %d of %d bytes" % (count, expected))


def from_file(source: str, path: str, size: Optional[int], what: str, say: Say) -> None:
    """Copy a file of the controller."""
    check_file(source, size, what)
    total = os.path.getsize(source)
    progress, count = Progress(what, total, say), 0
    try:
        with open(source, "rb") as stream, open(path, "wb") as output:
            for block in iter(lambda: stream.read(disk.BLOCK), b""):
                output.write(block)
                count += len(block)
                progress.at(count)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk.no_space(what, path, total, disk.free_bytes(path)) from error
        raise Refusal(
            what, str(error), "a file that can be read", "Check its owner and mode"
        ) from error


def check_file(source: str, size: Optional[int], what: str) -> None:
    """Refuse a source file that is not there, cannot be read or has another size."""
    if not os.path.isfile(source) or not os.access(source, os.R_OK):
        raise Refusal(
            what,
            "no readable file %s on the controller" % source,
            "it to exist",
            "Check the source's path",
        )
    found = os.path.getsize(source)
    if size is not None and found != size:
        raise Refusal(
            what,
            "%s with %d bytes (truncated?)" % (source, found),
            "%d bytes" % size,
            "Get the whole file, or mend its size and digest",
        )


def from_index(
    index: Dict[str, str], name: str, path: str, size: Optional[int], what: str, say: Say
) -> None:
    """A wheel through the controller's own pip, so that the user's pip configuration holds.

    :param index: ``{"package", "version"}``
    :param name: the wheel's file name; its platform tags are what pip is asked for
    """
    folder = tempfile.mkdtemp(prefix="pip-", dir=os.path.dirname(path))
    try:
        command = pip() + pip_arguments(index, name, folder)
        code, output = _run_pip(command, folder, Progress(what, size, say))
        wheels = [found for found in os.listdir(folder) if found.endswith(".whl")]
        if code or not wheels:
            raise Refusal(
                what,
                "pip: %s" % pip_trouble(output),
                "%s %s from the configured package index" % (index["package"], index["version"]),
                "Check pip's configuration on the controller (pip config list) and the network",
            )
        if wheels != [name]:
            raise Refusal(
                what,
                "the file %s" % ", ".join(wheels),
                name,
                "Mend 'file' and the digest in the lock, or the index",
            )
        os.replace(os.path.join(folder, name), path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pip() -> List[str]:
    """How to call pip: this Python's own, else the first on the path."""
    probe = [sys.executable, "-m", "pip", "--version"]
    if sys.executable and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return probe[:3]
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found:
            return [found]
    raise Refusal(
        "package index",
        "no pip for %s and none on the path" % sys.executable,
        "pip on the controller",
        "Install pip there, or give the lock a 'url' or 'file' source",
    )


def pip_arguments(index: Dict[str, str], name: str, folder: str) -> List[str]:
    """Arguments that make pip download exactly the wheel ``name``, for whatever platform it is."""
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--progress-bar=off"]
    arguments += ["--no-input", "--disable-pip-version-check", "--dest", folder]
    for tag in name[: -len(".whl")].rsplit("-", 1)[-1].split("."):
        if tag != "any":
            arguments += ["--platform", tag]
    return [*arguments, "%s==%s" % (index["package"], index["version"])]


def pip_trouble(output: str) -> str:
    """The lines of pip's output that say why, without passwords."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")] or lines[-2:]
    text = " ".join(errors[-3:]) or "no output"
    return re.sub(r"//[^/@\s]+@", "//****@", text)[:600]


def _run_pip(command: List[str], folder: str, progress: Progress) -> Any:
    scratch = os.path.join(folder, "tmp")
    os.mkdir(scratch)
    environment = dict(os.environ, TMPDIR=scratch)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
        try:
            # pip says nothing that a program can read; what it has written so far tells.
            while True:
                try:
                    process.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    progress.at(_written(scratch))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(0)
        return process.returncode, log.read().decode("utf-8", "replace")


def _written(folder: str) -> int:
    largest = 0
    for base, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.lstat(os.path.join(base, name)).st_size)
    return largest
