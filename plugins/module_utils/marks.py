# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an ingress tells a relay about an answer that is its own and not an engine's."""

from __future__ import annotations

# The header; the ingress takes it out of engines' answers.
INGRESS_ERROR = "X-Tether-Ingress-Error"

# Its value where no engine was reached, so that nothing of the request has left the ingress.
ENGINE_UNREACHABLE = "engine_unreachable"
