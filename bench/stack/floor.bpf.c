// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Packets of one port of UDP over IPv4 go into the ring RING, and no further.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
// linux/bpf.h.
enum { TC_ACT_UNSPEC = -1, TC_ACT_SHOT = 2 };
struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
    u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};
static long (*const load_bytes)(struct __sk_buff *, u32, void *, u32) = (void *)26;
static void *(*const reserve)(void *, u64, u64) = (void *)131;
static void (*const submit)(void *, u64) = (void *)132;
// linux/bpf.h, and libbpf's: a map whose file tc makes.
enum { RINGBUF = 27, NO_WAKEUP = 1, PIN_BY_NAME = 1 };
struct {
    int (*type)[RINGBUF];
    int (*max_entries)[1 << 20];
    int (*pinning)[PIN_BY_NAME];
} RING __attribute__((section(".maps"), used));

enum { ETHERNET = 14, IPV4 = 20, UDP = 8, BYTES = 64, PROTOCOL = 9, PROTOCOL_UDP = 17 };

SECTION("to_ring") int to_ring_of_port(struct __sk_buff *packet) {
    const u8 *frame = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    if (frame + ETHERNET + IPV4 + UDP > end || frame[12] != 0x08 || frame[13] != 0x00)
        return TC_ACT_UNSPEC;
    const u8 *ip = frame + ETHERNET, *udp = ip + IPV4;
    if (ip[0] != 0x45 || ip[PROTOCOL] != PROTOCOL_UDP || (udp[2] << 8 | udp[3]) != PORT)
        return TC_ACT_UNSPEC;
    enum { FRAME = ETHERNET + IPV4 + UDP + BYTES };
    if (packet->len != FRAME)
        return TC_ACT_SHOT;
    void *place = reserve(&RING, FRAME, 0);
    if (!place)
        return TC_ACT_SHOT;
    load_bytes(packet, 0, place, FRAME);
    submit(place, NO_WAKEUP);
    return TC_ACT_SHOT;
}

char LICENSE[] SECTION("license") = "Dual MIT/GPL";
