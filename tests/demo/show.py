# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What `make demo` ends with: a pod asks a model through its Service, and says what to try next.

The pod is an ordinary client: it mounts nothing, has no rights and knows one name, that of the
Service. Each command is shown as it is run, so that it can be typed again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Another bed than the demo's can be named, for those who try this file.
BED = sys.argv[1] if len(sys.argv) > 1 else "demo"
TESTBED = ("python3", "tests/testbed", "--bed", BED)
NAMESPACE, MODEL = "team-a", "tiny"
CLIENTS, POD = "visitors", "visitor"
URL = f"http://{MODEL}.{NAMESPACE}.svc/v1"

BOLD, DIM, RED, PLAIN = (
    ("\033[1m", "\033[2m", "\033[31m", "\033[0m") if sys.stdout.isatty() else [""] * 4
)

POD_MANIFEST = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {CLIENTS}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {POD}, namespace: {CLIENTS}}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - {{name: {POD}, image: "tether.bed/client:1", imagePullPolicy: IfNotPresent}}
"""

NEXT = f"""
{BOLD}What to try next{PLAIN}
  Ask it yourself:     {" ".join(TESTBED)} kubectl exec -n {CLIENTS} {POD} -- \\
                         curl -sS {URL}/models
  Look at the cluster: {" ".join(TESTBED)} kubectl get pods,services -n {NAMESPACE}
  Look at a host:      {" ".join(TESTBED)} ssh gpu1 systemctl list-units 'tether-*'
  See that it is done: .venv/bin/ansible-playbook -i inventories/demo playbooks/site.yml --check
  Add a model:         copy an entry of fleet_models in inventories/demo/group_vars/all.yml under
                         another name, run the same without --check
  Take a host out:     the same with playbooks/drain.yml -e drain_hosts=gpu2 in place of
                         playbooks/site.yml, and back with undrain.yml (docs/drain.md)
  Take it all away:    make demo-down
"""


def kubectl(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TESTBED, "kubectl", *words],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def fail(what: str, said: str) -> None:
    print(f"{RED}{what}{PLAIN}\n{said.strip()}", file=sys.stderr)
    print(
        f"See how the relays are: {' '.join(TESTBED)} kubectl get pods,events -n {NAMESPACE}",
        file=sys.stderr,
    )
    sys.exit(1)


def start_client() -> None:
    """The client pod, made once; a later run finds it."""
    done = kubectl("apply", "-f", "-", text=POD_MANIFEST)
    if done.returncode:
        fail("The client pod was not accepted.", done.stderr)
    done = kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "-n", CLIENTS, "--timeout=90s")
    if done.returncode:
        fail("The client pod did not become ready.", done.stderr)


def curl(*words: str) -> list[str]:
    """argv of a curl in the client pod; it fails without an answer and on a status from 400 on."""
    return [
        *TESTBED, "kubectl", "exec", "-n", CLIENTS, POD, "--",
        "curl", "-sS", "--fail-with-body", "--max-time", "120", *words,
    ]  # fmt: skip


def question(stream: bool) -> list[str]:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What holds a kite?"}],
        "max_tokens": 24,
        "stream": stream,
    }
    return [
        f"{URL}/chat/completions",
        "-H",
        "content-type: application/json",
        "-d",
        json.dumps(body),
    ]


def show(title: str, words: list[str]) -> None:
    command = " ".join(quote(word) for word in words)
    print(f"\n{BOLD}{title}{PLAIN}\n{DIM}pod$ curl -sS {command}{PLAIN}")


def quote(word: str) -> str:
    return f"'{word}'" if set(word) & set(' {}"') else word


def ask() -> None:
    """One whole answer."""
    words = question(stream=False)
    show("A chat completion, through the Service", words)
    started = time.monotonic()
    done = subprocess.run(curl(*words), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{URL} gave no answer.", done.stdout + done.stderr)
    answer = json.loads(done.stdout)
    text = answer["choices"][0]["message"]["content"]
    if not text:
        fail("The answer is empty.", done.stdout)
    print(text)
    tokens, seconds = answer["usage"]["completion_tokens"], time.monotonic() - started
    print(f"{DIM}({tokens} tokens, {seconds:.1f} s){PLAIN}")


def ask_streamed() -> None:
    """One answer as it comes, token by token."""
    words = question(stream=True)
    show("The same, streamed", words)
    pieces, ended = 0, False
    with subprocess.Popen(
        curl("-N", *words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        other = []
        for line in process.stdout:
            if not line.startswith("data: "):
                other.append(line)
            elif line.strip() == "data: [DONE]":
                ended = True
            else:
                for choice in json.loads(line[6:])["choices"]:
                    piece = choice["delta"].get("content") or ""
                    pieces += bool(piece)
                    print(piece, end="", flush=True)
        said = "".join(other) + process.stderr.read()
    print()
    if process.returncode or not ended or not pieces:
        fail(f"The stream from {URL} broke.", said)
    print(f"{DIM}({pieces} pieces, whole){PLAIN}")


def main() -> None:
    start_client()
    ask()
    ask_streamed()
    print(
        f"\n{DIM}The model has random weights, so the words mean nothing, whatever is asked.\n"
        "The way they took is real: pod -> Service -> relay -> TLS -> ingress on the host ->\n"
        "llama-server. The machine `neighbour` serves nothing: tests play a stranger from it."
        + PLAIN
    )
    print(NEXT)


if __name__ == "__main__":
    main()
