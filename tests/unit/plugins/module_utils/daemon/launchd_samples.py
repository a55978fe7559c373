# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Output of launchctl in the layout that people published of macOS 26.5.1, 26.6 and 27.0."""

from __future__ import annotations


def job(label="tether-x", ended="(never exited)", pid=4242, **blocks):
    """``launchctl print system/LABEL``, with what differs between jobs.

    :param ended: what stands for ``last exit code``, or a whole line with ``=``
    :param blocks: lines of ``arguments`` and ``environment``
    """
    last = ended if "=" in ended else "last exit code = %s" % ended
    arguments = blocks.get("arguments", ["/opt/tether/x/current/x", "--port", "8080"])
    environment = blocks.get("environment", ["HOME => /var/empty", "TETHER_DIGEST => 0123"])
    lines = [
        "system/%s = {" % label,
        "\tactive count = %d" % bool(pid),
        "\tpath = /Library/LaunchDaemons/%s.plist" % label,
        "\ttype = LaunchDaemon",
        "\tstate = %s" % ("running" if pid else "not running"),
        "",
        "\tprogram = %s" % arguments[0],
        "\targuments = {",
        *("\t\t" + line for line in arguments),
        "\t}",
        "",
        "\tstdout path = /var/log/tether/%s.log" % label,
        "\tstderr path = /var/log/tether/%s.log" % label,
        "\tdefault environment = {",
        "\t\tPATH => /usr/bin:/bin:/usr/sbin:/sbin",
        "\t}",
        "",
        "\tenvironment = {",
        "\t\tOSLogRateLimit => 64",
        *("\t\t" + line for line in environment),
        "\t\tXPC_SERVICE_NAME => %s" % label,
        "\t}",
        "",
        "\tdomain = system",
        "\tusername = tether-a",
        "\tgroup = tether-a",
        "\tminimum runtime = 2",
        "\texit timeout = 30",
        "\truns = 3",
        *(["\tpid = %d" % pid] if pid else []),
        "\timmediate reason = speculative",
        "\t%s" % last,
        "",
        "\tevent triggers = {",
        "\t\tcom.example => {",
        "\t\t\tstate = 0",
        "\t\t\tdescriptor = {",
        '\t\t\t\t"Minute" => 30',
        "\t\t\t}",
        "\t\t}",
        "\t}",
        "",
        "\tresource coalition = {",
        "\t\tID = 1262",
        "\t\tstate = active",
        "\t\tactive count = 1",
        "\t\tpid = 1",
        "\t}",
        "",
        "\tspawn type = interactive (4)",
        "\tjetsam memory limit (active) = (unlimited)",
        "\tjob state = running",
        "",
        "\tproperties = keepalive | runatload | inferred program",
        "}",
        "",
    ]
    return "\n".join(lines)


DISABLED = """disabled services = {
\t"com.apple.ftpd" => disabled
\t"tether-off" => disabled
\t"tether-on" => enabled
}
"""
# Before macOS 13: true is disabled. More blocks may follow.
DISABLED_BEFORE = """\tdisabled services = {
\t\t"tether-off" => true
\t\t"tether-on" => false
\t}
\tlogin item associations = {
\t\t"tether-on" => true
\t}
"""
