# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What relays and ingresses say to each other beside what clients and engines say."""

from __future__ import annotations

# The header of an answer that is the ingress's own; it takes it out of engines' answers.
INGRESS_ERROR = "X-Tether-Ingress-Error"

# Its value where no engine was reached, so that nothing of the request has left the ingress.
ENGINE_UNREACHABLE = "engine_unreachable"

# Where relays ask an ingress for a model's metrics; below a prefix that is no client's to ask for.
RESERVED_PREFIX = "/.tether/"
METRICS_PATH = RESERVED_PREFIX + "metrics"

# Of a page in Prometheus' text format; an empty one is valid, too.
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
