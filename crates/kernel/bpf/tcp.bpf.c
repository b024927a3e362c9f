// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The ledger of TCP: what sockets send, receive and read, and the segments that carry it.
//
// Programs on the kernel's tracepoints, each of which writes a record.

#include "records.bpf.h"

#include "packet.bpf.h"

static long (*const probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static struct tcp_sock *(*const skc_to_tcp_sock)(void *sock) = (void *)137;

enum { STATE_LISTEN = 10 };
enum { FIN = 1, SYN = 2 };

struct inet_connection_sock {
    u8 icsk_retransmits;
    u8 icsk_ca_state : 5;
} KERNEL;
struct tcp_sock {
    struct inet_connection_sock inet_conn;
    u32 write_seq, snd_una, snd_nxt, snd_wnd, snd_cwnd, packets_out, sacked_out, mss_cache;
    u32 rcv_nxt, copied_seq;
    u64 bytes_sent;
    u8 nonagle : 4;
} KERNEL;
struct iovec {
    unsigned char *iov_base;
    unsigned long iov_len;
} KERNEL;
struct iov_iter {
    u8 iter_type;
    unsigned long iov_offset, count;
    struct iovec __ubuf_iovec;
    const struct iovec *__iov;
} KERNEL;
enum { ITER_UBUF, ITER_IOVEC };
struct msghdr {
    struct iov_iter msg_iter;
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
    u16 ports[2]; // local and remote, in the machine's order; of a segment: its source's, its target's
    u8 local[16], remote[16];
    u32 seq, bytes, ack;
    u32 write_seq, snd_una, snd_nxt, snd_wnd, snd_cwnd, packets_out, sacked_out;
    union {
        struct {
            u32 rcv_nxt, copied_seq;
        };
        u64 word; // SEND and MESSAGE: those bytes where a message has its number
    };
    u32 mss;
    u8 nagle_off, congestion_state;
    u8 tcp_flags; // SEND and MESSAGE: bytes of `word`
    u8 pacing;
};
_Static_assert(sizeof(struct record) == RECORD_SIZE, "src/programs/record.rs has this layout");

enum { SEND = 1, RECEIVE, READY, READ, RESEND, OUT, IN, MESSAGE = 16, QUEUED = 19 };

// The record of a socket's event; 0 where it is not one of TCP in a measured namespace, or where
// there was no room.
static struct record *of_socket(u8 kind, struct sock *sk) {
    u16 family = sk->__sk_common.skc_family;
    if (sk->sk_protocol != PROTOCOL_TCP || (family != FAMILY_IPV4 && family != FAMILY_IPV6))
        return 0;
    struct tcp_sock *tcp = skc_to_tcp_sock(sk);
    u32 netns = sk->__sk_common.skc_net.net->ns.inum;
    if (!tcp || sk->__sk_common.skc_state == STATE_LISTEN)
        return 0;
    u8 how = measured(netns);
    if (!how || !is_chosen_socket(how, sk))
        return 0;
    struct record *record = begin(kind);
    if (!record)
        return 0;
    record->netns = netns;
    record->socket = (u64)sk;
    put_ends(sk, &record->family, record->ports, record->local, record->remote);
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

// The record of a packet whose network header is at `at`, if it is a segment of TCP.
static int of_segment(u8 kind, struct sk_buff *skb, const unsigned char *at) {
    struct packet packet;
    struct tcp_header tcp;
    u32 netns = netns_of(skb);
    u8 how = measured(netns);
    // A fragment has no header of TCP, but for the first.
    if (!how || !is_chosen_device(how, skb))
        return 0;
    if (!read_packet(&packet, skb, at) || packet.protocol != PROTOCOL_TCP ||
        packet.offset)
        return 0;
    if (probe_read_kernel(&tcp, sizeof(tcp), at + packet.headers) ||
        !is_chosen(how, __builtin_bswap16(tcp.source), __builtin_bswap16(tcp.target)))
        return 0;
    struct record *record = begin(kind);
    if (!record)
        return 0;
    record->netns = netns;
    record->family = packet.family;
    __builtin_memcpy(record->local, packet.source, 16);
    __builtin_memcpy(record->remote, packet.target, 16);
    record->socket = (u64)skb->sk;
    record->ports[0] = __builtin_bswap16(tcp.source);
    record->ports[1] = __builtin_bswap16(tcp.target);
    record->seq = __builtin_bswap32(tcp.seq);
    record->ack = __builtin_bswap32(tcp.ack);
    record->tcp_flags = tcp.flags;
    record->bytes = packet.bytes - (tcp.offset >> 4) * 4;
    ringbuf_submit(record, NO_WAKEUP);
    return 0;
}

// The bytes that a call sends and that can be read: of several buffers those of the first one.
struct given {
    const unsigned char *at;
    u64 bytes;
};

// Finds those of a call; none where they are in no memory of the program's.
static void put_given(struct given *given, struct iov_iter *from) {
    given->at = 0;
    given->bytes = 0;
    u64 length = from->count;
    if (from->iter_type == ITER_UBUF) {
        given->at = from->__ubuf_iovec.iov_base;
    } else if (from->iter_type == ITER_IOVEC) {
        const struct iovec *first = from->__iov;
        if (probe_read_kernel(&given->at, sizeof(given->at), &first->iov_base) ||
            probe_read_kernel(&length, sizeof(length), &first->iov_len))
            return;
        length -= from->iov_offset;
    } else {
        return;
    }
    given->at += from->iov_offset;
    given->bytes = length < from->count ? length : from->count;
}

// How far a connection is, whose messages have their length.
struct way {
    u32 next; // the sequence number at which the next message begins
    u32 upto; // where the last call's bytes end
    u32 lost; // it is not known any more where messages begin
};
struct way_key {
    u64 socket;
    u32 ports, unused;
};
MAP(MAP_LRU_HASH, struct way_key, struct way, 4096) ways SECTION(".maps");

// A call may have fewer than so many: with the last of them it is given up.
enum { MOST_MESSAGES = 64 };

// A message begins at `seq` and has so many bytes; with `known` bytes of a word that has its number.
static void put_message(struct sock *sk, u32 seq, u32 bytes, u64 word, u8 known) {
    struct record *record = of_socket(MESSAGE, sk);
    if (record) {
        record->seq = seq;
        record->bytes = bytes;
        record->word = word;
        record->tcp_flags = known;
        ringbuf_submit(record, NO_WAKEUP);
    }
}

// Records the messages that begin in what a call gives to a socket.
static void put_messages(struct sock *sk, struct iov_iter *from, struct number *number) {
    struct tcp_sock *tcp = skc_to_tcp_sock(sk);
    if (!tcp)
        return;
    u32 seq = tcp->write_seq;
    u32 ports = (u32)sk->__sk_common.skc_num << 16 | sk->__sk_common.skc_dport;
    struct way_key key = {(u64)sk, ports, 0};
    struct way *known = map_lookup_elem(&ways, &key);
    struct way way = {seq, seq, 0};
    u32 bytes = from->count;
    if (known) {
        way = *known;
        // The rest of a call that copies piece by piece, or that is made again for it.
        if (way.lost || way.upto == seq + bytes)
            return;
    }
    // Some of what was sent before was not seen.
    way.lost = known ? way.upto != seq : tcp->bytes_sent || tcp->write_seq != tcp->snd_nxt;
    struct given given;
    put_given(&given, from);
    for (int i = 0; i < MOST_MESSAGES && !way.lost; i++) {
        u32 at = way.next - seq;
        if (at >= bytes)
            break;
        u64 length = 0, word = 0;
        u8 width = number->width;
        way.lost = i == MOST_MESSAGES - 1 ||
                   read_word(&length, probe_read_user, given.at, given.bytes,
                             (u64)at + number->length) < width;
        if (way.lost)
            break;
        if (number->big)
            length = __builtin_bswap64(length) >> (64 - 8 * width);
        else
            length &= width < 8 ? (1ull << 8 * width) - 1 : ~0ull;
        length += number->uncounted;
        // This is no length of a message.
        way.lost = !length || length > 1u << 30;
        if (way.lost)
            break;
        u8 found = read_word(&word, probe_read_user, given.at, given.bytes, (u64)at + number->offset);
        put_message(sk, way.next, length, word, found);
        way.next += length;
    }
    if (way.lost)
        put_message(sk, way.next, 0, 0, 0);
    way.upto = seq + bytes;
    map_update_elem(&ways, &key, &way, 0);
}

SECTION("tp_btf/tcp_sendmsg_locked")
int tcp_send(u64 *arguments) {
    struct sock *sk = (void *)arguments[0];
    struct msghdr *message = (void *)arguments[1];
    struct number *number = 0;
    if (measured(sk->__sk_common.skc_net.net->ns.inum))
        number = number_at(PROTOCOL_TCP, sk->__sk_common.skc_num,
                           __builtin_bswap16(sk->__sk_common.skc_dport));
    if (number && number->width)
        put_messages(sk, &message->msg_iter, number);
    struct record *record = of_socket(SEND, sk);
    if (record) {
        record->seq = record->write_seq;
        record->bytes = message->msg_iter.count;
        record->word = 0;
        if (number && !number->width) {
            struct given given;
            put_given(&given, &message->msg_iter);
            record->tcp_flags = read_word(&record->word, probe_read_user, given.at, given.bytes,
                                          number->offset);
        }
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

SECTION("tp_btf/net_dev_queue")
int segment_queued(u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    return of_segment(QUEUED, skb, skb->head + skb->network_header);
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
