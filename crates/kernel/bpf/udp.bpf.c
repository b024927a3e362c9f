// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The datagrams of UDP on their way from the call that sends one to the call that reads it, and the
// packets that the kernel drops.
//
// No tracepoint has a datagram together with its socket. So one is known by its addresses, its length
// and its first bytes wherever it comes by, and of a socket it is told when something is in it and
// when a thread has read from it.

#include "records.bpf.h"

#include "packet.bpf.h"

struct ports {
    u16 source, target;
    u16 length; // of UDP: with its header
    u16 checksum;
};

// So many of the first bytes go into the hash.
enum { HASHED = 32 };

struct datagram {
    u64 at; // CLOCK_MONOTONIC, ns
    u64 socket;
    u32 tid;
    u16 cpu;
    u8 kind;
    u8 family;
    u32 netns;
    u16 ports[2]; // source and target, in the machine's order; of a socket: its own, the other's
    u8 source[16], target[16];
    u32 bytes;  // of its content in this packet
    u32 id;     // by which its fragments are known
    u64 hash;   // of the first bytes of its content
    u32 offset; // of this fragment
    u32 device; // its number
    u16 hashed; // bytes of which the hash is; all others are not at hand
    u8 more;    // fragments follow
    u8 protocol;
    u32 reason;   // why it was dropped: enum skb_drop_reason
    u64 location; // where
    u32 length;   // bytes of the whole content, as its first fragment says
    u8 word_bytes;
    u8 unused;
    u16 segment; // the content is several of so many bytes (UDP_SEGMENT); 0: it is one
    u64 word; // those bytes where a message has its number; of a segment of TCP its sequence number
};
_Static_assert(sizeof(struct datagram) == RECORD_SIZE, "src/programs/record.rs has this layout");

enum { QUEUED = 10, OUT, IN, READY, READ, DROP };
enum { MSG_PEEK = 2 };

// The hash of the bytes at `at`, of which the packet has so many: 64 bits of FNV-1a's kind, eight
// bytes at a time.
static void put_hash(struct datagram *record, const unsigned char *at, u32 bytes) {
    u64 words[HASHED / 8] = {};
    u64 hash = 0xcbf29ce484222325;
    u32 size = bytes < HASHED ? bytes : HASHED;
    if (probe_read_kernel(words, size, at))
        return;
    for (int word = 0; word < HASHED / 8; word++) {
        hash = (hash ^ words[word]) * 0x100000001b3;
        hash ^= hash >> 32;
    }
    record->hash = hash;
    record->hashed = size;
}

// The record of a packet whose network header is at `at`, if it is of UDP, or of TCP as well if it is
// dropped; else 0.
static struct datagram *of_packet(u8 kind, u32 netns, u8 how, struct sk_buff *skb,
                                  const unsigned char *at) {
    struct packet packet;
    struct ports ports = {};
    if (!read_packet(&packet, skb, at))
        return 0;
    u8 udp = packet.protocol == PROTOCOL_UDP;
    if (!udp && (kind != DROP || packet.protocol != PROTOCOL_TCP))
        return 0;
    const unsigned char *transport = at + packet.headers;
    if (!packet.offset && (probe_read_kernel(&ports, sizeof(ports), transport) ||
                           !is_chosen(how, __builtin_bswap16(ports.source),
                                      __builtin_bswap16(ports.target))))
        return 0;
    struct datagram *record = begin(kind);
    if (!record)
        return 0;
    record->netns = netns;
    record->family = packet.family;
    record->protocol = packet.protocol;
    __builtin_memcpy(record->source, packet.source, 16);
    __builtin_memcpy(record->target, packet.target, 16);
    record->bytes = packet.bytes;
    record->id = packet.id;
    record->offset = packet.offset;
    record->more = packet.more;
    if (!packet.offset) {
        record->ports[0] = __builtin_bswap16(ports.source);
        record->ports[1] = __builtin_bswap16(ports.target);
    }
    struct tcp_header tcp;
    if (!packet.offset && !udp && !probe_read_kernel(&tcp, sizeof(tcp), transport)) {
        record->bytes -= (tcp.offset >> 4) * 4;
        record->word = __builtin_bswap32(tcp.seq);
    }
    if (!packet.offset && udp) {
        record->bytes -= sizeof(ports);
        record->length = __builtin_bswap16(ports.length) - sizeof(ports);
        struct skb_shared_info *shared = (void *)(skb->head + skb->end);
        probe_read_kernel(&record->segment, sizeof(record->segment), &shared->gso_size);
        // What follows may be in other pages.
        long linear = (skb->data + (skb->len - skb->data_len)) - (transport + sizeof(ports));
        if (linear > record->bytes)
            linear = record->bytes;
        if (linear > 0) {
            struct number *number = number_at(PROTOCOL_UDP, record->ports[0], record->ports[1]);
            put_hash(record, transport + sizeof(ports), linear);
            if (number && (kind == QUEUED || kind == IN))
                record->word_bytes = read_word(&record->word, probe_read_kernel,
                                               transport + sizeof(ports), linear, number->offset);
        }
    }
    return record;
}

static int at_device(u8 kind, struct sk_buff *skb, const unsigned char *at) {
    u32 netns = netns_of(skb);
    u8 how = measured(netns);
    if (!how || !is_chosen_device(how, skb))
        return 0;
    struct datagram *record = of_packet(kind, netns, how, skb, at);
    if (record) {
        record->socket = (u64)skb->sk;
        record->device = skb->dev->ifindex;
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

SECTION("tp_btf/net_dev_queue")
int datagram_queued(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    return at_device(QUEUED, skb, skb->head + skb->network_header);
}

SECTION("tp_btf/net_dev_start_xmit")
int datagram_out(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    return at_device(OUT, skb, skb->head + skb->network_header);
}

SECTION("tp_btf/netif_receive_skb")
int datagram_in(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    return at_device(IN, skb, skb->data);
}

// The record of a socket of UDP; 0 where it is another one.
static struct datagram *of_socket(u8 kind, struct sock *sk) {
    u16 family = sk->__sk_common.skc_family;
    u32 netns = sk->__sk_common.skc_net.net->ns.inum;
    if (sk->sk_protocol != PROTOCOL_UDP || (family != FAMILY_IPV4 && family != FAMILY_IPV6))
        return 0;
    u8 how = measured(netns);
    if (!how || !is_chosen_socket(how, sk))
        return 0;
    struct datagram *record = begin(kind);
    if (!record)
        return 0;
    record->netns = netns;
    record->socket = (u64)sk;
    put_ends(sk, &record->family, record->ports, record->source, record->target);
    return record;
}

SECTION("tp_btf/sk_data_ready")
int datagram_ready(u64 *arguments) {
    struct datagram *record = of_socket(READY, (void *)arguments[0]);
    if (record)
        ringbuf_submit(record, NO_WAKEUP);
    return 0;
}

SECTION("tp_btf/sock_recv_length")
int datagram_read(u64 *arguments) {
    int bytes = arguments[1];
    if (bytes < 0 || (arguments[2] & MSG_PEEK))
        return 0;
    struct datagram *record = of_socket(READ, (void *)arguments[0]);
    if (record) {
        record->bytes = bytes;
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

// The mark of a packet that the kernel drops because a program of the user-mode stack has it
// (crates/divert).
enum { TAKEN = 0x6c74 };

// What tracefs tells of a drop. Since Linux 6.11 it has the socket, as the tracepoint's fourth argument.
struct trace_event_raw_kfree_skb {
    void *rx_sk;
} KERNEL;

// A packet is dropped: by the socket that was to have it, or before one was found. Where the kernel
// has no fourth argument, the socket is not known; the verifier would refuse to have it read.
SECTION("tp_btf/kfree_skb")
int packet_drop(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    struct trace_event_raw_kfree_skb *traced = 0;
    struct sock *to = 0;
    if (__builtin_preserve_field_info(traced->rx_sk, FIELD_EXISTS))
        to = (void *)arguments[3];
    if (skb->mark == TAKEN)
        return 0;
    u32 netns = to ? to->__sk_common.skc_net.net->ns.inum : netns_of(skb);
    u8 how = measured(netns);
    if (!how)
        return 0;
    struct datagram *record = of_packet(DROP, netns, how, skb, skb->head + skb->network_header);
    if (record) {
        record->socket = (u64)to;
        record->location = arguments[1];
        record->reason = arguments[2];
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}
