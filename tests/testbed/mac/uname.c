/* Copyright: tether.fleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * Part of an emulated Mac (docs/testing.md): preloaded into every program of a Linux host, it answers
 * uname(2) as macOS 15.6 on Apple silicon does. Programs that run the host itself get the truth. */

#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static int runs_the_host(void)
{
	static const char *const names[] = {"system", "journal", "login", "(", "dbus", "udev", "init"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(program_invocation_short_name, names[i], strlen(names[i])))
			return 1;
	return getpid() == 1;
}

int uname(struct utsname *name)
{
	if (syscall(SYS_uname, name) == -1)
		return -1;
	if (runs_the_host())
		return 0;
	strcpy(name->sysname, "Darwin");
	strcpy(name->release, "24.6.0");
	strcpy(name->version, "Darwin Kernel Version 24.6.0: emulated; RELEASE_ARM64_T6041");
	strcpy(name->machine, "arm64");
	return 0;
}
