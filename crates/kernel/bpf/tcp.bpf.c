// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The ledger of TCP: what sockets send, receive and read, and the segments that carry it.
//
// Programs on the kernel's tracepoints, each of which writes a record.

#include "records.bpf.h"

static long (*const probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static struct tcp_sock *(*const skc_to_tcp_sock)(void *sock) = (void *)137;

enum { FAMILY_IPV4 = 2, FAMILY_IPV6 = 10, PROTOCOL_TCP = 6, STATE_LISTEN = 10 };
enum { FIN = 1, SYN = 2 };
enum { ETHERNET_IPV4 = 0x0800, ETHERNET_IPV6 = 0x86dd };

typedef struct {
    struct net *net;
} KERNEL possible_net_t;
struct in6_addr {
    union {
        u8 u6_addr8[16];
    } in6_u;
} KERNEL;
struct sock_common {
    u32 skc_daddr;
    u32 skc_rcv_saddr;
    u16 skc_dport;
    u16 skc_num;
    u16 skc_family;
    volatile u8 skc_state;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
} KERNEL;
struct sock {
    struct sock_common __sk_common;
    u16 sk_protocol;
    u32 sk_pacing_status;
} KERNEL;
struct inet_connection_sock {
    u8 icsk_retransmits;
    u8 icsk_ca_state : 5;
} KERNEL;
struct tcp_sock {
    struct inet_connection_sock inet_conn;
    u32 write_seq, snd_una, snd_nxt, snd_wnd, snd_cwnd, packets_out, sacked_out, mss_cache;
    u32 rcv_nxt, copied_seq;
    u8 nonagle : 4;
} KERNEL;
struct iov_iter {
    unsigned long count;
} KERNEL;
struct msghdr {
    struct iov_iter msg_iter;
} KERNEL;
struct net_device {
    int ifindex;
    possible_net_t nd_net;
} KERNEL;
struct sk_buff {
    struct sock *sk;
    struct net_device *dev;
    unsigned char *head, *data;
    u16 protocol, network_header, transport_header;
    u32 len;
    char cb[48];
} KERNEL;
struct tcp_skb_cb {
    u32 seq, end_seq;
} KERNEL;

struct record {
    u64 at; // CLOCK_MONOTONIC, ns
    u64 socket;
    u32 tid;
    u16 cpu;
    u8 kind;
    u8 family;
    u32 netns;
    u16 local_port, remote_port; // in the machine's order; of a segment: its source's, its target's
    u8 local[16], remote[16];
    u32 seq, bytes, ack;
    u32 write_seq, snd_una, snd_nxt, snd_wnd, snd_cwnd, packets_out, sacked_out;
    u32 rcv_nxt, copied_seq, mss;
    u8 nagle_off, congestion_state, tcp_flags, pacing;
};
_Static_assert(sizeof(struct record) == RECORD_SIZE, "src/programs/record.rs has this layout");

enum { SEND = 1, RECEIVE, READY, READ, RESEND, OUT, IN };

// The record of a socket's event; 0 where it is not one of TCP in a measured namespace, or where
// there was no room.
static struct record *of_socket(u8 kind, struct sock *sk) {
    u16 family = sk->__sk_common.skc_family;
    if (sk->sk_protocol != PROTOCOL_TCP || (family != FAMILY_IPV4 && family != FAMILY_IPV6))
        return 0;
    struct tcp_sock *tcp = skc_to_tcp_sock(sk);
    u32 netns = sk->__sk_common.skc_net.net->ns.inum;
    if (!tcp || sk->__sk_common.skc_state == STATE_LISTEN || !measured(netns))
        return 0;
    struct record *record = begin(kind);
    if (!record)
        return 0;
    record->netns = netns;
    record->socket = (u64)sk;
    record->family = family;
    record->local_port = sk->__sk_common.skc_num;
    record->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
    if (family == FAMILY_IPV4) {
        *(u32 *)record->local = sk->__sk_common.skc_rcv_saddr;
        *(u32 *)record->remote = sk->__sk_common.skc_daddr;
    } else {
        probe_read_kernel(record->local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
        probe_read_kernel(record->remote, 16, &sk->__sk_common.skc_v6_daddr);
    }
    record->write_seq = tcp->write_seq;
    record->snd_una = tcp->snd_una;
    record->snd_nxt = tcp->snd_nxt;
    record->snd_wnd = tcp->snd_wnd;
    record->snd_cwnd = tcp->snd_cwnd;
    record->packets_out = tcp->packets_out;
    record->sacked_out = tcp->sacked_out;
    record->rcv_nxt = tcp->rcv_nxt;
    record->copied_seq = tcp->copied_seq;
    record->mss = tcp->mss_cache;
    record->nagle_off = tcp->nonagle;
    record->pacing = sk->sk_pacing_status;
    record->congestion_state = tcp->inet_conn.icsk_ca_state;
    return record;
}

// The sequence numbers that a packet of the socket's own lists has; a SYN and a FIN have one each.
static void put_range(struct record *record, struct sk_buff *skb) {
    struct tcp_skb_cb range = {};
    const struct tcp_skb_cb *from = (const struct tcp_skb_cb *)skb->cb;
    probe_read_kernel(&range.seq, 4, &from->seq);
    probe_read_kernel(&range.end_seq, 4, &from->end_seq);
    record->seq = range.seq;
    record->bytes = range.end_seq - range.seq;
}

struct ipv4 {
    u8 length, service;
    u16 total, id, fragment;
    u8 hops, protocol;
    u16 checksum;
    u8 source[4], target[4];
};
struct ipv6 {
    u8 version[4];
    u16 payload;
    u8 next, hops;
    u8 source[16], target[16];
};
struct tcp_header {
    u16 source, target;
    u32 seq, ack;
    u8 offset, flags;
    u16 window;
};

// The record of a packet whose network header is at `at`, if it is a segment of TCP.
static int of_segment(u8 kind, struct sk_buff *skb, const unsigned char *at) {
    u32 netns = skb->dev->nd_net.net->ns.inum;
    if (!measured(netns))
        return 0;
    union {
        struct ipv4 v4;
        struct ipv6 v6;
    } network;
    struct tcp_header tcp;
    u16 protocol = __builtin_bswap16(skb->protocol);
    u32 headers, total;
    if (protocol == ETHERNET_IPV4) {
        if (probe_read_kernel(&network.v4, sizeof(network.v4), at))
            return 0;
        // A fragment has no header of TCP, but for the first.
        if (network.v4.protocol != PROTOCOL_TCP || (network.v4.fragment & __builtin_bswap16(0x1fff)))
            return 0;
        headers = (network.v4.length & 15) * 4;
    } else if (protocol == ETHERNET_IPV6) {
        if (probe_read_kernel(&network.v6, sizeof(network.v6), at))
            return 0;
        if (network.v6.next != PROTOCOL_TCP)
            return 0;
        headers = sizeof(network.v6);
    } else {
        return 0;
    }
    if (probe_read_kernel(&tcp, sizeof(tcp), at + headers))
        return 0;
    // The length in the header of one that the device is to cut may be 0.
    total = skb->len - (u32)(at - skb->data);
    struct record *record = begin(kind);
    if (!record)
        return 0;
    record->netns = netns;
    if (protocol == ETHERNET_IPV4) {
        record->family = FAMILY_IPV4;
        __builtin_memcpy(record->local, network.v4.source, 4);
        __builtin_memcpy(record->remote, network.v4.target, 4);
    } else {
        record->family = FAMILY_IPV6;
        __builtin_memcpy(record->local, network.v6.source, 16);
        __builtin_memcpy(record->remote, network.v6.target, 16);
    }
    record->socket = (u64)skb->sk;
    record->local_port = __builtin_bswap16(tcp.source);
    record->remote_port = __builtin_bswap16(tcp.target);
    record->seq = __builtin_bswap32(tcp.seq);
    record->ack = __builtin_bswap32(tcp.ack);
    record->tcp_flags = tcp.flags;
    record->bytes = total - headers - (tcp.offset >> 4) * 4;
    ringbuf_submit(record, NO_WAKEUP);
    return 0;
}

SECTION("tp_btf/tcp_sendmsg_locked")
int tcp_send(u64 *arguments) {
    struct sock *sk = (void *)arguments[0];
    struct msghdr *message = (void *)arguments[1];
    struct record *record = of_socket(SEND, sk);
    if (record) {
        record->seq = record->write_seq;
        record->bytes = message->msg_iter.count;
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

SECTION("tp_btf/tcp_probe")
int tcp_receive(u64 *arguments) {
    struct sock *sk = (void *)arguments[0];
    struct sk_buff *skb = (void *)arguments[1];
    struct record *record = of_socket(RECEIVE, sk);
    if (record) {
        struct tcp_header tcp = {};
        probe_read_kernel(&tcp, sizeof(tcp), skb->head + skb->transport_header);
        put_range(record, skb);
        record->bytes -= (tcp.flags & FIN) + ((tcp.flags & SYN) >> 1);
        record->ack = __builtin_bswap32(tcp.ack);
        record->tcp_flags = tcp.flags;
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

SECTION("tp_btf/sk_data_ready")
int tcp_ready(u64 *arguments) {
    struct record *record = of_socket(READY, (void *)arguments[0]);
    if (record)
        ringbuf_submit(record, NO_WAKEUP);
    return 0;
}

SECTION("tp_btf/tcp_rcv_space_adjust")
int tcp_read(u64 *arguments) {
    struct record *record = of_socket(READ, (void *)arguments[0]);
    if (record)
        ringbuf_submit(record, NO_WAKEUP);
    return 0;
}

SECTION("tp_btf/tcp_retransmit_skb")
int tcp_resend(u64 *arguments) {
    struct record *record = of_socket(RESEND, (void *)arguments[0]);
    if (record) {
        put_range(record, (void *)arguments[1]);
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

SECTION("tp_btf/net_dev_start_xmit")
int segment_out(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    return of_segment(OUT, skb, skb->head + skb->network_header);
}

SECTION("tp_btf/netif_receive_skb")
int segment_in(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    return of_segment(IN, skb, skb->data);
}
