"""The system calls no program of a box has a use for, refused by the kernel's seccomp filter.

A second line behind the namespaces and the missing capabilities, for what these don't cover:
kernel keyrings (the session's one is inherited from the host), the kernel log, sockets that know
no network namespace (AF_VSOCK reaches the hypervisor), and interfaces whose only use in a box is
to attack the kernel. ptrace, chroot, mknod and raw sockets stay allowed, as in a container.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # importing typing itself would double the start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable

_ANYWHERE = (
    *(425, 426, 427),  # io_uring: its operations pass by every filter
    *(428, 429, 430, 431, 432, 433, 442, 467),  # open_tree .. fspick, mount_setattr, open_tree_attr
    443,  # quotactl_fd
)
# In the order: keyctl add_key request_key bpf perf_event_open userfaultfd kexec_load
# kexec_file_load init_module finit_module delete_module mount umount2 pivot_root setns
# open_by_handle_at fanotify_init swapon swapoff reboot acct quotactl syslog, and where there are
# any iopl ioperm uselib umount. Numbers from the kernel's own syscall tables.
_DENIED = {
    "x86_64": (
        *(250, 248, 249, 321, 298, 323, 246, 320, 175, 313, 176, 165, 166, 155, 308),
        *(304, 300, 167, 168, 169, 163, 179, 103, 172, 173, 134),
        *_ANYWHERE,
    ),
    "i386": (
        *(288, 286, 287, 357, 336, 374, 283, 128, 350, 129, 21, 52, 217, 346),
        *(342, 338, 87, 115, 88, 51, 131, 103, 110, 101, 86, 22),
        *_ANYWHERE,
    ),
    "aarch64": (
        *(219, 217, 218, 280, 241, 282, 104, 294, 105, 273, 106, 40, 39, 41, 268),
        *(265, 262, 224, 225, 142, 89, 60, 116),
        *_ANYWHERE,
    ),
}
# socket and socketpair.
_SOCKET = {"x86_64": (41, 53), "i386": (359, 360), "aarch64": (198, 199)}
_FAMILIES = (1, 2, 10, 16, 17)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET
_AUDIT_ARCH = {"x86_64": 0xC000003E, "i386": 0x40000003, "aarch64": 0xC00000B7}
_COMPAT = {"x86_64": ("x86_64", "i386"), "aarch64": ("aarch64",)}
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
_X32_BIT = 0x40000000
_I386_SOCKETCALL, _CALL_SOCKET, _CALL_SOCKETPAIR = 102, 1, 8

# Offsets in struct seccomp_data; of an argument its low half, on these little-endian machines.
_NUMBER, _ARCH, _ARGUMENT_0 = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, k)


def _return(code: int) -> bytes:
    return _op(_RETURN, _ERRNO | code if code else _ALLOW)


def _refuse_if(values: Iterable[int], code: int) -> bytes:
    """Returns `code` if the accumulator is any of `values`, else goes on."""
    return b"".join(_op(_EQUAL, value, 0, 1) + _return(code) for value in values)


def _allow_only(values: Iterable[int], code: int) -> bytes:
    return b"".join(_op(_EQUAL, value, 0, 1) + _return(0) for value in values) + _return(code)


def _block(machine: str) -> bytes:
    """The verdict on a call of one ABI."""
    block = _op(_LOAD, _NUMBER)
    if machine == "x86_64":  # the x32 ABI would pass by the numbers below
        block += _op(_AT_LEAST, _X32_BIT, 0, 1) + _return(errno.ENOSYS)
    block += _refuse_if(_DENIED[machine], errno.EPERM)
    family = _op(_LOAD, _ARGUMENT_0) + _allow_only(_FAMILIES, errno.EAFNOSUPPORT)
    first, second = _SOCKET[machine]
    skip = len(family) // 8
    block += _op(_EQUAL, first, 1, 0) + _op(_EQUAL, second, 0, skip) + family
    if machine == "i386":
        # Its arguments lie in memory, out of a filter's sight; today's C libraries don't use it.
        calls = _op(_LOAD, _ARGUMENT_0)
        calls += _refuse_if((_CALL_SOCKET, _CALL_SOCKETPAIR), errno.EAFNOSUPPORT)
        block += _op(_EQUAL, _I386_SOCKETCALL, 0, len(calls) // 8) + calls
    return block + _return(0)


def filter_program(machine: str) -> bytes:
    """The BPF program for a machine as `uname -m` names it; empty for one we have no table of."""
    program = b""
    for abi in _COMPAT.get(machine, ()):
        block = _block(abi)
        program += _op(_LOAD, _ARCH) + _op(_EQUAL, _AUDIT_ARCH[abi], 0, len(block) // 8) + block
    return program + _return(errno.ENOSYS) if program else b""


def install(machine: str | None = None) -> None:
    """From now on for this process and all it starts. Needs no_new_privs.

    Raises:
        OSError: the kernel refuses. A kernel without seccomp, or a machine without a table, is no
            error: the namespaces hold without it.
    """
    machine = machine or os.uname().machine
    program = filter_program(machine)
    if not program:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    # Without SPEC_ALLOW older kernels would slow down everything in the box.
    arguments = (_SECCOMP_CALL[machine], _SET_MODE_FILTER, _SPEC_ALLOW)
    result = libc.syscall(*map(ctypes.c_long, arguments), ctypes.c_char_p(head))
    if result != 0 and ctypes.get_errno() not in {errno.ENOSYS, errno.EINVAL}:
        raise OSError(ctypes.get_errno(), "seccomp filter")
