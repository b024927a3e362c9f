// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Looks at no packet: what any program of XDP on the device costs.

// linux/bpf.h.
enum { XDP_PASS = 2 };

__attribute__((section("xdp"), used)) int pass(void *packet)
{
    return XDP_PASS;
}
