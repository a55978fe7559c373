/* Copyright: tether.fleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * Part of an emulated Mac (docs/testing.md): preloaded into every program of a Linux host. It answers
 * uname(2) as macOS 15.6 on Apple silicon does, and hides folders that no Mac has, so that code
 * cannot lean on them. Programs that run the host itself are told the truth. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Neither <fcntl.h>, <sys/stat.h>, <stdio.h> nor <dirent.h>: they declare what is defined below. */
#define CREATES (0100 | 020000000) /* O_CREAT, O_TMPFILE */

static int runs_the_host(void)
{
	static const char *const names[] = {
		"system", "journal", "login", "(",    "dbus",   "udev",	 "init",
		"sshd",	  "sudo",    "agetty", "shutdown", "reboot", "halt", "poweroff",
	};

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

static int hidden(const char *path)
{
	static const char *const folders[] = {"/proc", "/sys", "/run"};

	if (path == NULL)
		return 0;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		size_t length = strlen(folders[i]);

		if (!strncmp(path, folders[i], length) && (path[length] == '/' || !path[length]))
			return !runs_the_host();
	}
	return 0;
}

#define UNLESS_HIDDEN(path, nothing)                                                               \
	if (hidden(path)) {                                                                        \
		errno = ENOENT;                                                                    \
		return nothing;                                                                    \
	}

/* A function of the C library whose first parameters are `params`, one of them `path`. */
#define WRAP(type, nothing, name, params, args)                                                    \
	type name params                                                                           \
	{                                                                                          \
		static type(*real) params;                                                         \
		UNLESS_HIDDEN(path, nothing)                                                       \
		if (!real)                                                                         \
			real = (type(*) params)dlsym(RTLD_NEXT, #name);                            \
		return real args;                                                                  \
	}

#define WRAP_OPEN(name, params, call, last)                                                        \
	int name params                                                                            \
	{                                                                                          \
		static int (*real) params;                                                         \
		int mode = 0;                                                                      \
		va_list rest;                                                                      \
		UNLESS_HIDDEN(path, -1)                                                            \
		if (!real)                                                                         \
			real = (int (*) params)dlsym(RTLD_NEXT, #name);                            \
		if (last & CREATES) {                                                              \
			va_start(rest, last);                                                      \
			mode = va_arg(rest, int);                                                  \
			va_end(rest);                                                              \
		}                                                                                  \
		return real call;                                                                  \
	}

WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, mode), flags)
WRAP_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), flags)
WRAP_OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), flags)
WRAP_OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), flags)
WRAP(void *, NULL, fopen, (const char *path, const char *mode), (path, mode))
WRAP(void *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
WRAP(void *, NULL, opendir, (const char *path), (path))
WRAP(int, -1, stat, (const char *path, void *into), (path, into))
WRAP(int, -1, stat64, (const char *path, void *into), (path, into))
WRAP(int, -1, lstat, (const char *path, void *into), (path, into))
WRAP(int, -1, lstat64, (const char *path, void *into), (path, into))
WRAP(int, -1, fstatat, (int at, const char *path, void *into, int flags), (at, path, into, flags))
WRAP(int, -1, fstatat64, (int at, const char *path, void *into, int flags), (at, path, into, flags))
WRAP(int, -1, statx, (int at, const char *path, int flags, unsigned mask, void *into),
     (at, path, flags, mask, into))
WRAP(int, -1, access, (const char *path, int how), (path, how))
WRAP(int, -1, faccessat, (int at, const char *path, int how, int flags), (at, path, how, flags))
WRAP(ssize_t, -1, readlink, (const char *path, char *into, size_t size), (path, into, size))
WRAP(ssize_t, -1, readlinkat, (int at, const char *path, char *into, size_t size),
     (at, path, into, size))
