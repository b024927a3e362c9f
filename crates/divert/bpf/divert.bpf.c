// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Packets of registered flows of devices go into the ring of a program, which has it mapped. What it
// sends by its inlet, if it is of a flow of its own, goes where the kernel's routes and neighbours
// have it, or, as if it came, to the kernel. Both are programs of traffic control. A flow
// whose socket is closed or disconnected is forgotten at once: its addresses may become another's.
// One that is held is not: the service is about to have a socket for it. Of sockets of UDP the kernel
// does not tell; the service holds their ports.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline))
#define MAP(name, map_type, key_type, value_type, entries) \
    struct { \
        int (*type)[map_type]; \
        int (*max_entries)[entries]; \
        key_type *key; \
        value_type *value; \
    } name SECTION(".maps")

// linux/bpf.h.
enum { HASH = 1, HASH_OF_MAPS = 13, SK_STORAGE = 24, RINGBUF = 27 };
enum { NO_PREALLOC = 1 };
enum { TC_ACT_SHOT = 2, TCX_NEXT = -1 };
// The mark of a packet that a program has, and the kernel drops (see crates/kernel/bpf).
enum { TAKEN = 0x6c74 };
struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
    u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
    u32 napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port;
    u32 local_port, data_meta;
    u64 flow_keys, tstamp;
    u32 wire_len, gso_segs;
    u64 sk;
    u32 gso_size;
};
static void *(*const lookup)(void *, const void *) = (void *)1;
static long (*const store_bytes)(struct __sk_buff *, u32, const void *, u32, u64) = (void *)9;
static long (*const redirect)(u32, u64) = (void *)23;
static long (*const pull_data)(struct __sk_buff *, u32) = (void *)39;
static long (*const load_bytes)(const struct __sk_buff *, u32, void *, u32) = (void *)26;
static void *(*const reserve)(void *, u64, u64) = (void *)131;
static void (*const submit)(void *, u64) = (void *)132;
static void (*const discard)(void *, u64) = (void *)133;
static u64 (*const query)(void *, u64) = (void *)134;
static long (*const change_length)(struct __sk_buff *, u32, u64) = (void *)38;
enum { NO_WAKEUP = 1, READER = 2, KERNEL = 3 }; // of a ring
static long (*const probe_read_kernel)(void *, u32, const void *) = (void *)113;
static long (*const delete)(void *, const void *) = (void *)3;
static void *(*const socket_storage)(void *, void *, void *, u64) = (void *)107;
static long (*const redirect_neigh)(u32, void *, int, u64) = (void *)152;
enum { INGRESS = 1 };
// net/tcp_states.h.
enum { CLOSE = 7 };

enum { ETHERNET = 14 };
enum { PROTOCOL_ICMP = 1, PROTOCOL_TCP = 6, PROTOCOL_UDP = 17, PROTOCOL_ICMPV6 = 58 };
// RFC 792, RFC 4443.
enum { ICMP_HEADER = 8, ICMP_UNREACHABLE = 3, ICMP_FRAGMENTATION_NEEDED = 4, ICMPV6_TOO_BIG = 2 };
enum { IPV4_HEADER = 20, IPV6_HEADER = 40, FRAGMENT = 0x3fff, TCP_HEADER = 20, UDP_HEADER = 8 };
// Bytes of what wakes a program at most: more than headers.
enum { BELL = 256 };
enum { PORTS = 8 }; // with the number of the first byte, in TCP's header

// linux/skbuff.h: where the kernel has it, the kernel says when the program is loaded.
struct sk_buff {
    u8 ip_summed : 2;
} __attribute__((preserve_access_index));
// What __builtin_preserve_field_info is asked for.
enum { FIELD_OFFSET = 0, FIELD_LEFT = 4, FIELD_RIGHT = 5 };

// As the receiver sees it. The addresses of IPv4 are in the first four bytes.
struct flow {
    u8 remote[16], local[16];
    u16 remote_port, local_port; // in the network's order
    u8 protocol;
    u8 is_ipv6;
    u8 unused[2];
};
struct registered {
    u32 ring;   // of the program, in `rings`
    u32 inlet;  // index of the device by which the program sends
    u32 device; // index of the device
    u32 mark;   // of what goes to the kernel
    u8 address[6]; // the device's, of Ethernet
    u8 stopped;    // what comes goes to the kernel
    u8 held;       // its socket is being replaced
    u64 packets, payload; // that the program got
    u64 lost;             // packets for which its ring had no room
};
// What stands before a frame in a ring.
struct before {
    u32 length; // of the frame
    u32 summed; // what is known of its checksum: CHECKSUM_… of linux/skbuff.h
};
struct ring {
    int (*type)[RINGBUF];
    int (*max_entries)[4096]; // each has its own size
};
// Those of programs.
struct {
    int (*type)[HASH_OF_MAPS];
    int (*map_flags)[NO_PREALLOC];
    int (*max_entries)[65536];
    u32 *key;
    u32 *value;
    struct ring *values[];
} rings SECTION(".maps");
MAP(flows, HASH, struct flow, struct registered, 65536);
// Those of sockets.
struct {
    int (*type)[SK_STORAGE];
    int (*map_flags)[NO_PREALLOC];
    int *key;
    struct flow *value;
} of_sockets SECTION(".maps");
INLINE void copy(u8 *to, const u8 *from, int count) {
    for (int i = 0; i < count; i++)
        to[i] = from[i];
}

// The flow of an IP packet; where its transport begins, 0: it is of none. `leaves`: it is of the
// other direction. `length`: bytes from there on.
INLINE const u8 *flow_of(const u8 *ip, const u8 *end, int is_ipv6, struct flow *flow, u32 *length,
                         int leaves) {
    u8 *source = leaves ? flow->local : flow->remote, *target = leaves ? flow->remote : flow->local;
    const u8 *transport;
    flow->is_ipv6 = is_ipv6;
    if (is_ipv6) {
        if (ip + IPV6_HEADER > end)
            return 0;
        flow->protocol = ip[6];
        copy(source, ip + 8, 16);
        copy(target, ip + 24, 16);
        *length = ip[4] << 8 | ip[5];
        transport = ip + IPV6_HEADER;
    } else {
        if (ip + IPV4_HEADER > end)
            return 0;
        // Without options; neither a fragment nor one of which more follow.
        if (ip[0] != 0x45 || ((ip[6] << 8 | ip[7]) & FRAGMENT))
            return 0;
        flow->protocol = ip[9];
        copy(source, ip + 12, 4);
        copy(target, ip + 16, 4);
        *length = (ip[2] << 8 | ip[3]) - IPV4_HEADER;
        transport = ip + IPV4_HEADER;
    }
    if (transport + PORTS > end)
        return 0;
    u16 first = *(const u16 *)transport, second = *(const u16 *)(transport + 2);
    flow->remote_port = leaves ? second : first;
    flow->local_port = leaves ? first : second;
    return transport;
}

// Bytes of the header of a protocol with ports; 0: it is another one, or the header is not whole.
INLINE u32 header_of(const u8 *transport, const u8 *end, u8 protocol) {
    if (protocol == PROTOCOL_TCP && transport + TCP_HEADER <= end)
        return (transport[12] >> 4) * 4;
    return protocol == PROTOCOL_UDP && transport + UDP_HEADER <= end ? UDP_HEADER : 0;
}

// Whether a frame is of IPv6, else of IPv4; -1: it is of neither.
INLINE int family_of(const u8 *frame, const u8 *end) {
    if (frame + ETHERNET > end)
        return -1;
    if (frame[12] == 0x08 && frame[13] == 0x00)
        return 0;
    return frame[12] == 0x86 && frame[13] == 0xdd ? 1 : -1;
}

// Whether a router tells that it has dropped a packet because it was too large, and the flow of
// that packet, which had left. Its beginning is in the message.
INLINE int is_too_big(const u8 *icmp, const u8 *end, int is_ipv6, struct flow *flow) {
    u32 length;
    if (icmp + ICMP_HEADER > end)
        return 0;
    if (is_ipv6 ? icmp[0] != ICMPV6_TOO_BIG
                : icmp[0] != ICMP_UNREACHABLE || icmp[1] != ICMP_FRAGMENTATION_NEEDED)
        return 0;
    return flow_of(icmp + ICMP_HEADER, end, is_ipv6, flow, &length, 1) != 0;
}

// What the kernel knows of a packet's checksum.
INLINE u32 summed(const struct __sk_buff *packet) {
    const struct sk_buff *kernels = (const void *)packet;
    u64 bytes = 0;
    u32 offset = __builtin_preserve_field_info(kernels->ip_summed, FIELD_OFFSET);
    probe_read_kernel(&bytes, sizeof bytes, (const u8 *)packet + offset);
    bytes <<= __builtin_preserve_field_info(kernels->ip_summed, FIELD_LEFT);
    return bytes >> __builtin_preserve_field_info(kernels->ip_summed, FIELD_RIGHT);
}

// Puts a packet into a place of a ring, which has `room` bytes. Returns whether there was one. The
// reader is not woken.
INLINE int put(struct __sk_buff *packet, void *ring, u32 room) {
    struct before *before = reserve(ring, room, 0);
    if (!before)
        return 0;
    u32 length = packet->len;
    // The verifier is to see these bounds in the very register that it has.
    asm volatile("" : "+r"(length));
    if (length == 0 || length > room - sizeof *before ||
        load_bytes(packet, 0, before + 1, length)) {
        discard(before, 0);
        return 0;
    }
    before->length = length;
    before->summed = summed(packet);
    submit(before, NO_WAKEUP);
    return 1;
}

// The kernel's programs reserve places of sizes that are known beforehand.
INLINE int give(struct __sk_buff *packet, void *ring) {
    if (packet->len <= 256 - sizeof(struct before))
        return put(packet, ring, 256);
    if (packet->len <= 2048 - sizeof(struct before))
        return put(packet, ring, 2048);
    if (packet->len <= 16384 - sizeof(struct before))
        return put(packet, ring, 16384);
    // No packet of IP has more bytes, but for those with an option (RFC 2675).
    return put(packet, ring, 65536 + 24);
}

// Returns TCX_NEXT for what is the kernel's.
SECTION("classifier") int arrive(struct __sk_buff *packet) {
    if (packet->vlan_present)
        return TCX_NEXT;
    const u8 *frame = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct flow flow = {}, dropped = {};
    u32 length = 0, payload = 0;
    int is_ipv6 = family_of(frame, end);
    if (is_ipv6 < 0)
        return TCX_NEXT;
    u32 headers = ETHERNET + (is_ipv6 ? IPV6_HEADER : IPV4_HEADER) + TCP_HEADER;
    if (frame + headers > end && packet->len >= headers) {
        // They are not at hand. To have them costs a copy, also of what is others'.
        if (pull_data(packet, headers))
            return TCX_NEXT;
        frame = (void *)(long)packet->data;
        end = (void *)(long)packet->data_end;
    }
    const u8 *transport = flow_of(frame + ETHERNET, end, is_ipv6, &flow, &length, 0);
    if (!transport)
        return TCX_NEXT;
    struct registered *found;
    if (flow.protocol == (is_ipv6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
        // The kernel's socket of UDP learns it.
        if (!is_too_big(transport, end, is_ipv6, &dropped) || dropped.protocol != PROTOCOL_TCP)
            return TCX_NEXT;
        found = lookup(&flows, &dropped);
    } else {
        u32 header = header_of(transport, end, flow.protocol);
        if (!header)
            return TCX_NEXT;
        // Several datagrams that were not cut yet: the kernel's socket gets them one by one.
        if (flow.protocol == PROTOCOL_UDP && packet->gso_size)
            return TCX_NEXT;
        payload = length > header ? length - header : 0;
        found = lookup(&flows, &flow);
    }
    // What the program gives the kernel passes here, too.
    if (!found || found->stopped || packet->mark == found->mark)
        return TCX_NEXT;
    u32 number = found->ring;
    void *ring = lookup(&rings, &number);
    if (!ring)
        return TCX_NEXT;
    u64 begin = query(ring, KERNEL);
    if (!give(packet, ring)) {
        __sync_fetch_and_add(&found->lost, 1);
        return TC_ACT_SHOT;
    }
    packet->mark = TAKEN;
    u64 places = query(ring, KERNEL) - begin;
    __sync_fetch_and_add(&found->packets, 1);
    __sync_fetch_and_add(&found->payload, payload);
    // A reader that waits says so by having read all before this place.
    if (query(ring, READER) - begin >= places)
        return TC_ACT_SHOT;
    // By the inlet it is woken at once. The wake-up of the ring comes by another interrupt.
    if (packet->len > BELL)
        change_length(packet, BELL, 0);
    return redirect(found->inlet, 0);
}

// The flow that a frame is of, if it is one of this inlet's. Only IP and its ports are looked at:
// the kernel makes Ethernet's header. While no socket has the flow, another program's may get it.
INLINE struct registered *own(struct __sk_buff *packet, int leaves) {
    const u8 *frame = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct flow flow = {};
    u32 length;
    int is_ipv6 = family_of(frame, end);
    if (is_ipv6 < 0)
        return 0;
    const u8 *transport = flow_of(frame + ETHERNET, end, is_ipv6, &flow, &length, leaves);
    if (!transport || !header_of(transport, end, flow.protocol))
        return 0;
    struct registered *found = lookup(&flows, &flow);
    return found && found->inlet == packet->ingress_ifindex && !found->held ? found : 0;
}

SECTION("classifier") int leave(struct __sk_buff *frame) {
    // The kernel has moved a VLAN's tag away from the bytes; it would add it again.
    if (frame->vlan_present)
        return TC_ACT_SHOT;
    // The headers may not be at hand.
    if (frame->data + ETHERNET + IPV6_HEADER + TCP_HEADER > frame->data_end)
        pull_data(frame, ETHERNET + IPV6_HEADER + TCP_HEADER);
    struct registered *found = own(frame, 1);
    if (found)
        return redirect_neigh(found->device, 0, 0, 0);
    found = own(frame, 0);
    // The kernel passes over what is for another address.
    if (!found || store_bytes(frame, 0, found->address, sizeof(found->address), 0))
        return TC_ACT_SHOT;
    frame->mark = found->mark;
    return redirect(found->device, INGRESS);
}

// Its arguments: the socket, its state before, and now.
SECTION("tp_btf/inet_sock_set_state") int gone(u64 *arguments) {
    if ((int)arguments[2] != CLOSE)
        return 0;
    struct flow *flow = socket_storage(&of_sockets, (void *)arguments[0], 0, 0);
    struct registered *found = flow ? lookup(&flows, flow) : 0;
    if (found && !found->held)
        delete (&flows, flow);
    return 0;
}

char LICENSE[] SECTION("license") = "Dual MIT/GPL";
