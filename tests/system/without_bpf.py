"""Runs a command to which the kernel refuses the system call bpf: `without_bpf.py COMMAND ...`."""

import ctypes
import errno
import os
import platform
import struct
import sys

BPF = {"x86_64": 321, "aarch64": 280}
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
RETURN_ALLOW, RETURN_ERRNO = 0x7FFF0000, 0x00050000
# Load a word, jump if it is equal, return.
LOAD, IS_EQUAL, RETURN = 0x20, 0x15, 0x06


class Program(ctypes.Structure):
    """A filter of system calls (``struct sock_fprog``)."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(number: int) -> None:
    """Has the kernel answer EPERM to a system call of this process and its children."""
    steps = (
        (LOAD, 0, 0, 0),  # the call's number
        (IS_EQUAL, 0, 1, number),
        (RETURN, 0, 0, RETURN_ERRNO | errno.EPERM),
        (RETURN, 0, 0, RETURN_ALLOW),
    )
    program = Program(len(steps), b"".join(struct.pack("=HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "cannot filter system calls")


if __name__ == "__main__":
    refuse(BPF[platform.machine()])
    os.execvp(sys.argv[1], sys.argv[1:])
