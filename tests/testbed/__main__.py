# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The test bed's command line: `python3 tests/testbed [--bed NAME] COMMAND`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from bed import cluster, hosts, layout, lifecycle, process
from bed.errors import BedError

_COMMANDS = """\
commands:
  up [--hosts gpu1,mac1,...]   make a bed, complete it, or mend it
  down                         take it away
  status [--json]              how it is; the exit status is 0 if it is well
  prepare                      only install and build what beds need
  ssh HOST [COMMAND...]        log in to a host
  kubectl [ARGUMENT...]        kubectl as the cluster's administrator
  exec -- COMMAND...           run a command in the bed's network
  link HOST up|down            put a host's cable in, or pull it
"""


def main(arguments: Sequence[str]) -> int:
    """Run one command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="testbed",
        description="A fleet in one machine: hosts and a Kubernetes cluster.",
        epilog=_COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--bed", default="demo", metavar="NAME", help="which bed (default: %(default)s)"
    )
    parser.add_argument("command", choices=_ACTIONS, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    return _ACTIONS[options.command](options.bed, options.arguments)


def _up(name: str, arguments: list[str]) -> int:
    parser = _parser("up")
    parser.add_argument(
        "--hosts",
        type=lambda text: text.split(","),
        help="hosts that the bed has, and no others; mac1 to mac9 are emulated Macs "
        f"(a new bed: {','.join(layout.DEFAULT_HOSTS)}; else: those that it has)",
    )
    return _show(lifecycle.up(name, parser.parse_args(arguments).hosts))


def _down(name: str, arguments: list[str]) -> int:
    _parser("down").parse_args(arguments)
    if not lifecycle.down(layout.check_name(name)):
        print(f"there is no bed {name}")
    return 0


def _status(name: str, arguments: list[str]) -> int:
    parser = _parser("status")
    parser.add_argument("--json", action="store_true", help="for programs")
    return _show(layout.get(name), as_json=parser.parse_args(arguments).json)


def _show(bed: layout.Bed, *, as_json: bool = False) -> int:
    content = lifecycle.status(bed)
    print(json.dumps(content, indent=2) if as_json else lifecycle.status_text(bed, content))
    return 0 if content["ok"] else 1


def _prepare(_: str, arguments: list[str]) -> int:
    _parser("prepare").parse_args(arguments)
    lifecycle.prepare()
    return 0


def _ssh(name: str, arguments: list[str]) -> int:
    if not arguments:
        raise BedError("ssh: which host?")
    host, *words = arguments
    return _become([*hosts.ssh(layout.get(name), host), *words])


def _kubectl(name: str, arguments: list[str]) -> int:
    return _become([*cluster.kubectl(layout.get(name)), *arguments])


def _exec(name: str, arguments: list[str]) -> int:
    words = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not words:
        raise BedError("exec: which command?")
    return _become(process.enter(lifecycle.require_up(name), "exec", words))


def _link(name: str, arguments: list[str]) -> int:
    parser = _parser("link")
    parser.add_argument("host")
    parser.add_argument("state", choices=("up", "down"))
    options = parser.parse_args(arguments)
    lifecycle.link(lifecycle.require_up(name), options.host, options.state)
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"testbed {command}")


def _become(argv: list[str]) -> int:
    """Turn into another program, so that signals and exit status are its own."""
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 (no shell is meant)


_ACTIONS = {
    "up": _up,
    "down": _down,
    "status": _status,
    "prepare": _prepare,
    "ssh": _ssh,
    "kubectl": _kubectl,
    "exec": _exec,
    "link": _link,
}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        sys.exit(1)
    except PermissionError as error:
        print(f"testbed: {error.filename}: permission denied (use sudo)", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read our output has seen enough; nor can Python flush the rest of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
