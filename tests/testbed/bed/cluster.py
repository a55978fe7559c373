# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster: real Kubernetes programs, each a process of the bed."""

from __future__ import annotations

import hashlib
import http.client
import json
import string
from pathlib import Path
from typing import Any

from . import api, files, goparts, images, pki, process
from .commands import run, wait_until
from .errors import BedError
from .layout import NODE, Bed
from .process import Daemon

_MANIFEST = Path(__file__).resolve().parent.parent / "manifests" / "cluster.yaml"
_CNI_PROGRAMS = Path("/usr/lib/cni")
_FIREWALL_HEALTH_PORT = 20244
_COMPONENTS = (
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:kube-proxy",
    f"system:node:{NODE}",
    "kube-router",
    "system:serviceaccount:kube-system:coredns",
)
"""Whose reading is left out of the audit log: it would drown everybody else's."""


def kubectl(bed: Bed) -> list[str]:
    """The command line of kubectl, as the administrator."""
    return [_program("kubectl"), f"--kubeconfig={bed.kubeconfig}"]


def daemons(bed: Bed) -> list[Daemon]:
    """All processes of the cluster, in the order in which they start."""
    return [*foundation(bed), *node(bed), firewall(bed)]


def foundation(bed: Bed) -> list[Daemon]:
    """Those that wait for nobody, or know how to wait."""
    return [_etcd(bed), _apiserver(bed), _containerd(bed)]


def node(bed: Bed) -> list[Daemon]:
    """Those that give up when the API server or containerd does not answer."""
    return [_controller_manager(bed), _scheduler(bed), _kubelet(bed), _kube_proxy(bed)]


def firewall(bed: Bed) -> Daemon:
    """The one that enforces NetworkPolicies; it gives up when it has no rights or no node."""
    return _kube_router(bed)


def configure(bed: Bed) -> None:
    """Write the configuration of all programs."""
    files.write(_audit_policy(bed), json.dumps(_audit_policy_content(), indent=2))
    files.write(bed.etc / "containerd.toml", _containerd_text(bed))
    # No registry can be reached from here. Say so at once: the time-outs of a
    # name server that is not there would hold up pods for minutes.
    nowhere = "http://127.0.0.1:9"
    default = f'server = "{nowhere}"\n[host."{nowhere}"]\n'
    files.write(_registries(bed) / "_default" / "hosts.toml", default)
    files.write(bed.etc / "cni" / "bed.conflist", json.dumps(_cni_content(bed), indent=2))
    files.write(bed.etc / "kubelet.json", json.dumps(_kubelet_content(bed), indent=2))
    # For pods that want the node's names, and for the name service itself.
    files.write(bed.etc / "resolv.conf", f"nameserver {bed.dns_address}\n")


def wait_control_plane(bed: Bed) -> None:
    """Wait until the API server says that it is ready."""
    process.wait_ready(
        bed, "kube-apiserver", lambda: api.get(bed, "/readyz") == "ok", 60, "it was ready"
    )


def wait_containerd(bed: Bed) -> None:
    """Wait until containerd answers."""
    process.wait_ready(bed, "containerd", lambda: bool(_ctr(bed, "version")), 30, "it answered")


def import_images(bed: Bed) -> int:
    """Give containerd the images that it does not have; return how many these were."""
    present = (_ctr(bed, "images", "list", "--quiet") or "").split()
    imported = 0
    for image in images.ALL:
        # The name by digest comes last, so it says that all of it is there.
        if image.pinned in present:
            continue
        run([*_ctr_command(bed), "images", "import", image.archive])
        tag = [*_ctr_command(bed), "images", "tag", "--force", image.name]
        run([*tag, image.pinned])
        imported += 1
    files.write(bed.relay_image, images.ENVOY.pinned + "\n")
    return imported


def apply_manifest(bed: Bed) -> bool:
    """Apply what belongs to the cluster itself; return whether anything changed."""
    names = {"machine": bed.machine_address, NODE: bed.node_address, **bed.hosts}
    values = {
        "coredns": images.COREDNS.pinned,
        "dns_address": bed.dns_address,
        "zones": " ".join(f"{name}:1053" for name in names),
        # Indented as the place in the manifest where they go.
        "hosts": f"\n{' ' * 12}".join(f"{address} {name}" for name, address in names.items()),
    }
    template = string.Template(_MANIFEST.read_text())
    checksum = hashlib.sha256(template.safe_substitute(values).encode()).hexdigest()[:16]
    text = template.substitute(values, checksum=checksum)
    said = run([*kubectl(bed), "apply", "--filename=-"], stdin=text)
    return any(not line.endswith("unchanged") for line in said.splitlines())


def node_ready(bed: Bed) -> bool:
    """Whether the node is ready, and not only was when its kubelet died."""
    path = f"/api/v1/nodes/{NODE}"
    ready = api.has_condition(api.get(bed, path), "Ready")
    return ready and api.get(bed, f"{path}/proxy/healthz") == "ok"


def wait_node(bed: Bed) -> None:
    """Wait until pods can run."""
    process.wait_ready(bed, "kubelet", lambda: node_ready(bed), 90, "the node was ready")


def wait_firewall(bed: Bed) -> None:
    """Wait until NetworkPolicies are enforced."""
    process.wait_ready(bed, "kube-router", lambda: _firewall_is_well(bed), 60, "it was ready")


def wait_names(bed: Bed) -> None:
    """Wait until pods can look up names."""
    path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
    wait_until(lambda: api.rolled_out(api.get(bed, path)), 90, "the name service")


def _program(name: str) -> str:
    return str(goparts.KUBERNETES.directory / name)


def _firewall_is_well(bed: Bed) -> bool:
    connection = http.client.HTTPConnection(bed.node_address, _FIREWALL_HEALTH_PORT, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _socket(bed: Bed) -> Path:
    return bed.containerd / "containerd.sock"


def _ctr_command(bed: Bed) -> list[str]:
    return ["ctr", "--address", str(_socket(bed)), "--namespace", "k8s.io"]


def _ctr(bed: Bed, *words: str) -> str | None:
    try:
        return run([*_ctr_command(bed), "--connect-timeout", "2s", *words])
    except BedError:
        return None


def _registries(bed: Bed) -> Path:
    return bed.etc / "registries"


def _etcd(bed: Bed) -> Daemon:
    return Daemon(
        "etcd",
        (
            "etcd",
            f"--data-dir={bed.state / 'etcd'}",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            # A bed does not outlive its machine, so it need not survive a power cut.
            "--unsafe-no-fsync",
            "--auto-compaction-retention=10m",
        ),
    )


def _apiserver(bed: Bed) -> Daemon:
    return Daemon(
        "kube-apiserver",
        (
            _program("kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={bed.node_address}",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={pki.certificate(bed, 'ca')}",
            f"--tls-cert-file={pki.certificate(bed, 'kube-apiserver')}",
            f"--tls-private-key-file={pki.private_key(bed, 'kube-apiserver')}",
            f"--kubelet-certificate-authority={pki.certificate(bed, 'ca')}",
            f"--kubelet-client-certificate={pki.certificate(bed, 'apiserver-to-kubelet')}",
            f"--kubelet-client-key={pki.private_key(bed, 'apiserver-to-kubelet')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki.public_key(bed, 'service-account')}",
            f"--service-account-signing-key-file={pki.private_key(bed, 'service-account')}",
            f"--service-cluster-ip-range={bed.service_range}",
            f"--audit-policy-file={_audit_policy(bed)}",
            f"--audit-log-path={bed.audit_log}",
            "--audit-log-maxsize=500",
            "--profiling=false",
        ),
        inputs=(
            _audit_policy(bed),
            pki.certificate(bed, "kube-apiserver"),
            pki.private_key(bed, "service-account"),
        ),
    )


def _controller_manager(bed: Bed) -> Daemon:
    kubeconfig = pki.kubeconfig(bed, "kube-controller-manager")
    return Daemon(
        "kube-controller-manager",
        (
            _program("kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--root-ca-file={pki.certificate(bed, 'ca')}",
            f"--service-account-private-key-file={pki.private_key(bed, 'service-account')}",
            f"--cluster-signing-cert-file={pki.certificate(bed, 'ca')}",
            f"--cluster-signing-key-file={pki.private_key(bed, 'ca')}",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={bed.pod_range}",
            "--node-cidr-mask-size=24",
            f"--service-cluster-ip-range={bed.service_range}",
            "--profiling=false",
        ),
        inputs=(kubeconfig,),
    )


def _scheduler(bed: Bed) -> Daemon:
    kubeconfig = pki.kubeconfig(bed, "kube-scheduler")
    return Daemon(
        "kube-scheduler",
        (
            _program("kube-scheduler"),
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--profiling=false",
        ),
        inputs=(kubeconfig,),
    )


def _containerd(bed: Bed) -> Daemon:
    config = bed.etc / "containerd.toml"
    return Daemon(
        "containerd",
        ("containerd", f"--config={config}"),
        inputs=(config,),
        children_outlive_it=True,
    )


def _kubelet(bed: Bed) -> Daemon:
    config, kubeconfig = bed.etc / "kubelet.json", pki.kubeconfig(bed, "kubelet")
    return Daemon(
        "kubelet",
        (
            _program("kubelet"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={bed.state / 'kubelet'}",
            f"--cert-dir={bed.state / 'kubelet' / 'pki'}",
            f"--hostname-override={NODE}",
            f"--node-ip={bed.node_address}",
        ),
        inputs=(config, kubeconfig),
    )


def _kube_proxy(bed: Bed) -> Daemon:
    kubeconfig = pki.kubeconfig(bed, "kube-proxy")
    return Daemon(
        "kube-proxy",
        (
            _program("kube-proxy"),
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={bed.pod_range}",
            # The table of connections is the machine's; its size is not ours to set.
            "--conntrack-max-per-core=0",
            "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ),
        inputs=(kubeconfig,),
    )


def _kube_router(bed: Bed) -> Daemon:
    kubeconfig = pki.kubeconfig(bed, "kube-router")
    return Daemon(
        "kube-router",
        (
            str(goparts.KUBE_ROUTER.directory / "kube-router"),
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE}",
            # It is here for NetworkPolicies only.
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-loadbalancer=false",
            f"--service-cluster-ip-range={bed.service_range}",
            "--iptables-sync-period=1m",
            f"--health-port={_FIREWALL_HEALTH_PORT}",
        ),
        inputs=(kubeconfig,),
    )


def _audit_policy(bed: Bed) -> Path:
    return bed.etc / "audit-policy.json"


def _audit_policy_content() -> dict[str, Any]:
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "None",
                "users": list(_COMPONENTS),
                "verbs": ["get", "list", "watch"],
            },
            {
                "level": "None",
                "userGroups": ["system:serviceaccounts:kube-system"],
                "verbs": ["get", "list", "watch"],
            },
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "Metadata"},
        ],
    }


def _containerd_text(bed: Bed) -> str:
    return f"""\
version = 2
root = "{bed.containerd / "root"}"
state = "{bed.containerd / "state"}"
# They would make directories elsewhere, or only warn that they cannot work.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{_socket(bed)}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{images.PAUSE.name}"
netns_mounts_under_state_dir = true
# Without CAP_SYS_RESOURCE runc may not lower an OOM score, and would give up.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{bed.containerd / "runc"}"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{_registries(bed)}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_CNI_PROGRAMS}"
conf_dir = "{bed.etc / "cni"}"
"""


def _cni_content(bed: Bed) -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0",
        "name": bed.namespace,
        "plugins": [
            {
                # Each pod has a cable of its own to the node, not a switch with
                # the others: so all its traffic is routed, and passes the rules.
                "type": "ptp",
                "ipMasq": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(bed.state / "cni"),
                    "ranges": [[{"subnet": bed.pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _kubelet_content(bed: Bed) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.certificate(bed, "ca"))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.certificate(bed, "kubelet")),
        "tlsPrivateKeyFile": str(pki.private_key(bed, "kubelet")),
        "clusterDomain": "cluster.local",
        "clusterDNS": [bed.dns_address],
        "resolvConf": str(bed.etc / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{_socket(bed)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{bed.namespace}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "podLogsDir": str(bed.logs / "pods"),
        "volumePluginDir": str(bed.state / "kubelet" / "volume-plugins"),
        "serializeImagePulls": False,
        # There is no registry to fetch an image from again: never delete one.
        "imageGCHighThresholdPercent": 100,
        # The disk is the machine's: a full one is its owner's business.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
    }
