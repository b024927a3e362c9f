// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Packets of one port of UDP over IPv4 go to the other end of the pair NEAR at once, which is in
// another network namespace. What has come there goes no further.

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
static long (*const redirect_peer)(u32, u64) = (void *)155;

enum { ETHERNET = 14, IPV4 = 20, UDP = 8, PROTOCOL = 9, PROTOCOL_UDP = 17 };

SECTION("to_peer") int to_peer_of_near(struct __sk_buff *packet) {
    const u8 *frame = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    if (frame + ETHERNET + IPV4 + UDP > end || frame[12] != 0x08 || frame[13] != 0x00)
        return TC_ACT_UNSPEC;
    const u8 *ip = frame + ETHERNET, *udp = ip + IPV4;
    if (ip[0] != 0x45 || ip[PROTOCOL] != PROTOCOL_UDP || (udp[2] << 8 | udp[3]) != PORT)
        return TC_ACT_UNSPEC;
    return redirect_peer(NEAR, 0);
}

SECTION("ends") int ends_here(struct __sk_buff *packet) {
    return TC_ACT_SHOT;
}

char LICENSE[] SECTION("license") = "Dual MIT/GPL";
