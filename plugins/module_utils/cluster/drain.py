# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a relay pod ends: nobody new is kept, what runs is finished, then Envoy may stop. Pure.

Envoy ends at once on SIGTERM and cuts its streams (0.04 s, observed with Envoy 1.40). So the
kubelet asks before it sends the signal (``preStop``), at a listener of its own. A script there
tells Envoy's admin interface, which is a unix socket in the pod, to drain: every answer then
carries ``Connection: close``, and new connections, which nodes that do not know yet still send, are
served. The kubelet has its answer when no request runs any more; if that takes longer than the
pod's grace period, the rest is cut.

Whoever reaches the pod reaches this listener, so it asks for a key. The key is in the Deployment,
where the kubelet needs it, and in the ConfigMap beside it: those who may read these may end the
relay's connections too, by way of a drain; nobody else can.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ansible_collections.tether.fleet.plugins.module_utils.cluster import envoy_parts as parts

PORT = 8082
HEADER = "X-Tether-Drain"
PATH = "/drain"
ADMIN_SOCKET = "/run/tether/admin.sock"

# Seconds that a drain takes at least: as long as nodes may need to learn that the pod ends.
LEAST_SECONDS = 10

_ADMIN = "admin"
_PAUSE = "pause"
_PAUSE_PATH = "/pause"
_PAUSE_SECONDS = 0.5

# Lua has no sleep; a call to a route whose answer is held back for half a second is one.
_SCRIPT = """
local function ask(handle, cluster, method, path)
  local headers, body = handle:httpCall(
    cluster, {[":method"] = method, [":path"] = path, [":authority"] = "relay"}, nil, 5000)
  return headers[":status"] == "200", body
end

function envoy_on_request(handle)
  local headers = handle:headers()
  if headers:get(":path") ~= "%(path)s" then
    return
  end
  if headers:get("%(header)s") ~= "%(key)s" then
    handle:respond({[":status"] = "403"}, "")
    return
  end
  if not ask(handle, "%(admin)s", "POST", "/drain_listeners?inboundonly&graceful&skip_exit") then
    handle:respond({[":status"] = "503"}, "")
    return
  end
  local rounds, active = 0, nil
  repeat
    if not ask(handle, "%(pause)s", "GET", "%(pause_path)s") then
      handle:respond({[":status"] = "503"}, "")
      return
    end
    rounds = rounds + 1
    local _, text = ask(handle, "%(admin)s", "GET", "/stats?filter=downstream_rq_active")
    active = string.match(text or "", "http%%.service%%.downstream_rq_active: (%%d+)")
  until rounds >= %(rounds)d and active == "0"
  handle:respond({[":status"] = "200"}, "")
end
"""


def admin(socket: str) -> Dict[str, Any]:
    """Envoy's admin interface, for the pod's own user alone."""
    return {"address": parts.pipe(socket, mode=0o600)}


def clusters(socket: str, port: int) -> List[Dict[str, Any]]:
    """Where the script asks."""
    places = {_ADMIN: parts.pipe(socket), _PAUSE: parts.address("127.0.0.1", port)}
    return [
        {
            "name": name,
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}],
            },
        }
        for name, place in places.items()
    ]


def listener(listen: str, port: int, key: str, least_seconds: float) -> Dict[str, Any]:
    """The listener that the kubelet asks."""
    script = _SCRIPT % {
        "path": PATH,
        "header": HEADER.lower(),
        "key": key,
        "admin": _ADMIN,
        "pause": _PAUSE,
        "pause_path": _PAUSE_PATH,
        "rounds": round(least_seconds / _PAUSE_SECONDS),
    }
    held_back = parts.extension(
        "envoy.filters.http.fault",
        "filters.http.fault.v3.HTTPFault",
        {
            "delay": {
                "fixed_delay": "%ss" % _PAUSE_SECONDS,
                "percentage": {"numerator": 100},
            }
        },
    )
    manager = {
        "stat_prefix": "drain",
        # A stream may take an hour to end.
        "stream_idle_timeout": "0s",
        "route_config": {
            "name": "drain",
            "virtual_hosts": [
                {
                    "name": "drain",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"path": _PAUSE_PATH}, "direct_response": {"status": 200}},
                        {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
                    ],
                }
            ],
        },
        "http_filters": [
            parts.extension(
                "envoy.filters.http.lua",
                "filters.http.lua.v3.Lua",
                {"default_source_code": {"inline_string": script}},
            ),
            held_back,
            parts.router(),
        ],
    }
    return parts.always_answers(parts.listener("drain", listen, port, manager))


def pre_stop(key: str) -> Dict[str, Any]:
    """The container's hook."""
    return {
        "httpGet": {
            "path": PATH,
            "port": "drain",
            "scheme": "HTTP",
            "httpHeaders": [{"name": HEADER, "value": key}],
        }
    }


def read_key(deployment: Optional[Dict[str, Any]]) -> Optional[str]:
    """The key that a live Deployment has, so that it stays the same; None where there is none."""
    try:
        container = (deployment or {})["spec"]["template"]["spec"]["containers"][0]
        found = container["lifecycle"]["preStop"]["httpGet"]["httpHeaders"][0]
        name, value = str(found["name"]), str(found["value"])
    except (KeyError, IndexError, TypeError):
        return None
    # What somebody else wrote there must not become part of a script.
    return value if name == HEADER and value.isalnum() and len(value) >= 32 else None
