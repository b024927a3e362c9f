"""Builds the extension module.

It contains the C files of this crate, of crates/time, crates/trace and crates/clock.
"""

import os
import platform
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "trace-py"


def files(*patterns: str) -> "list[str]":
    """Relative to this file, as setuptools wants them."""
    return sorted(os.path.relpath(path, HERE) for p in patterns for path in ROOT.glob(p))


BUILD.mkdir(parents=True, exist_ok=True)
setup(
    ext_modules=[
        Extension(
            "loopscope_trace._core",
            sources=files(
                *(f"crates/{name}/c/*.c" for name in ("trace-py", "time", "trace", "clock"))
            ),
            depends=files("crates/*/c/*.h", "include/loopscope/*.h"),
            include_dirs=files("include"),
            define_macros=[("_GNU_SOURCE", None)],
            extra_compile_args=[
                "-std=gnu11",
                "-O2",
                "-g0",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
            ],
            extra_link_args=[
                # Zig's own library comes with debug information.
                "-Wl,--strip-debug",
                # Until glibc 2.33 threads are a library of their own.
                "-lpthread",
                # The core's calls stay inside, whatever else in the process has such names.
                "-Wl,--version-script=c/exports",
                # A thread that ended after the module was unloaded would call into nothing.
                "-Wl,-z,nodelete",
                "-Wl,-z,now",
            ],
            py_limited_api=True,
        )
    ],
    options={
        "bdist_wheel": {
            "py_limited_api": "cp38",
            # What Zig makes of it: see scripts/zig-cc.
            "plat_name": f"manylinux_2_28_{platform.machine()}",
        },
        # Other flags are other objects.
        "build_ext": {"force": True},
        # The core's objects go where their relative path leads from here.
        "build": {"build_base": str(BUILD), "build_temp": str(BUILD / "objects" / "trace-py")},
        "egg_info": {"egg_base": str(BUILD)},
    },
)
