// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Drops each segment of TCP over IPv4 whose last byte is 255, the first time it is sent.

// linux/bpf.h.
enum { XDP_DROP = 1, XDP_PASS = 2 };
struct xdp_md {
	unsigned data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

// Where fields begin in a frame without VLAN tag and options of IPv4.
enum { TYPE = 12, IP = 14, LENGTH = 16, PROTOCOL = 23, TCP = 34, SEQ = 38, OFFSET = 46, END = 54 };
enum { OF_TCP = 6, MOST = 2048, LOST = 255 };

// The sequence number of the last segment that was dropped.
static volatile unsigned dropped;

__attribute__((section("xdp"), used)) int drop(struct xdp_md *packet)
{
	unsigned char *frame = (unsigned char *)(long)packet->data;
	unsigned char *end = (unsigned char *)(long)packet->data_end;

	if (frame + END > end || frame[TYPE] != 8 || frame[TYPE + 1] || frame[PROTOCOL] != OF_TCP)
		return XDP_PASS;
	unsigned last = IP + (frame[LENGTH] << 8 | frame[LENGTH + 1]) - 1;
	unsigned header = TCP + (frame[OFFSET] >> 4) * 4;
	if (last < header || last > MOST || frame + last + 1 > end || frame[last] != LOST)
		return XDP_PASS;
	unsigned number = *(unsigned *)(frame + SEQ);
	if (number == dropped)
		return XDP_PASS;
	dropped = number;
	return XDP_DROP;
}
