# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An emulated Mac: stand-ins for the tools of macOS that the collection uses, on Linux.

Nothing here is macOS. Each file says what it imitates and where that behaviour is known from;
docs/testing.md says what is left out. Where macOS is lenient and a mistake would go unseen, the
emulation refuses: code that passes here shall work on a Mac.

Marks of sources: "source read" (somebody's source code was read, or a program taken apart), "an
issue says" (a public report), "measured" (somebody measured it on the version named), "inferred"
(follows from the others; nobody measured it).
"""
