"""The walls around a code node's process: Landlock for files, seccomp for sockets and other processes. Linux only.

Loaded by file name in the child, which knows the standard library only; the parent asks it what this machine can do.
Landlock (kernel 5.13): nothing can be opened but the libraries (to read) and the node's own folder; programs cannot be
executed. Seccomp: no socket can be made or connected, nor io_uring; no signal to, and no look into, another process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _READ_FILE | _READ_DIR
#: Beside the libraries of the interpreter. What is not there is left out.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/usr/share/locale")
_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/timezone")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

#: Per machine: the architecture as seccomp names it, and the numbers of the calls that are refused.
_ARCHITECTURES = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41, "connect": 42, "accept": 43, "sendmsg": 46, "bind": 49, "listen": 50, "accept4": 288,
            "sendmmsg": 307, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "tkill": 200,
            "unshare": 272, "setns": 308, "mount": 165, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
            "add_key": 248, "request_key": 249, "keyctl": 250,
        },
        {"kill": 62, "tgkill": 234, "sendto": 44},
    ),
    "aarch64": (
        0xC00000B7,
        {
            "socket": 198, "connect": 203, "accept": 202, "sendmsg": 211, "bind": 200, "listen": 201, "accept4": 242,
            "sendmmsg": 269, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "tkill": 130,
            "unshare": 97, "setns": 268, "mount": 40, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
            "add_key": 217, "request_key": 218, "keyctl": 219,
        },
        {"kill": 129, "tgkill": 131, "sendto": 206},
    ),
}  # fmt: skip
#: The same on every machine: pidfd_send_signal, io_uring_setup, _enter, _register, pidfd_open, pidfd_getfd.
_EVERYWHERE = (424, 425, 426, 427, 434, 438)
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_X32 = 0x40000000


def landlock_version() -> int:
    """0: this kernel has none, or it is off."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def has_seccomp() -> bool:
    return sys.platform == "linux" and platform.machine() in _ARCHITECTURES and os.path.exists("/proc/self/ns/pid")


def prepare_files(folder: str) -> int:
    """A ruleset for `shut_files`, made while the folders can still be reached; -1 where there is no Landlock."""
    version = landlock_version()
    if version == 0:
        return -1
    handled = (1 << 13) - 1
    for least, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if version >= least:
            handled |= right
    attributes = struct.pack("=QQQ", handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    own = handled & ~_EXECUTE & ~_IOCTL_DEV
    libraries = [*sys.path, os.path.join(sys.base_prefix, "lib"), *_LIBRARIES, *_FILES]
    for path, rights in [
        (folder, own),
        *((p, _READ) for p in libraries),
        *((p, _READ | _WRITE_FILE) for p in _DEVICES),
    ]:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if not os.path.isdir(path):
                rights &= _READ_FILE | _WRITE_FILE
            rule = struct.pack("=Qi", rights, place)
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(place)
    return ruleset


def shut_files(ruleset: int) -> None:
    """From now on only what the ruleset names can be opened. Needs no_new_privs. Raises OSError."""
    try:
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def shut_calls() -> None:
    """Refuse the calls that lead to the network and to other processes. Needs no_new_privs. Raises OSError."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in filter_program(os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    if _libc().prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def filter_program(pid: int) -> list[tuple[int, int, int, int]]:
    """The seccomp filter in BPF: signals only to `pid`, data only over what is connected, some calls not at all."""
    load, equal, at_least, leave = 0x20, 0x15, 0x35, 0x06
    architecture, refused, partly = _ARCHITECTURES[platform.machine()]
    refuse, allow = (leave, 0, 0, _REFUSE), (leave, 0, 0, _ALLOW)
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), refuse, (load, 0, 0, 0), (at_least, 0, 1, _X32), refuse]
    for number in (*refused.values(), *_EVERYWHERE):
        program += [(equal, 0, 1, number), refuse]
    for name in ("kill", "tgkill"):
        program += [(equal, 0, 4, partly[name]), (load, 0, 0, 16), (equal, 0, 1, pid), allow, refuse]
    # sendto with an address (its fifth argument) reaches whom nobody connected
    program += [(equal, 0, 6, partly["sendto"]), (load, 0, 0, 48), (equal, 0, 3, 0), (load, 0, 0, 52)]
    program += [(equal, 0, 1, 0), allow, refuse]
    return [*program, allow]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    done = int(_libc().syscall(ctypes.c_long(number), *arguments))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return done
