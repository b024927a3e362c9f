// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The headers of packets.

enum { FAMILY_IPV4 = 2, FAMILY_IPV6 = 10 };
enum { PROTOCOL_TCP = 6, PROTOCOL_UDP = 17, PROTOCOL_FRAGMENT = 44 };
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
enum { DEVICE_NAME = 16 };
struct net_device {
    int ifindex;
    char name[DEVICE_NAME];
    possible_net_t nd_net;
} KERNEL;
struct sk_buff {
    struct sock *sk;
    struct net_device *dev;
    unsigned char *head, *data;
    u16 protocol, network_header, transport_header;
    u32 len, data_len;
    u32 mark;
    u32 end; // from head
    char cb[48];
} KERNEL;

// Behind the content of a packet.
struct skb_shared_info {
    u16 gso_size;
} KERNEL;

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
struct ipv6_fragment {
    u8 next, reserved;
    u16 offset;
    u32 id;
};

struct tcp_header {
    u16 source, target;
    u32 seq, ack;
    u8 offset, flags;
    u16 window;
};

// A packet of IP. Of a fragment `protocol` is that of the whole datagram.
struct packet {
    u32 headers; // bytes of IP's headers
    u32 bytes;   // what they are followed by
    u32 id;      // by which the fragments of a datagram are known
    u32 offset;  // of a fragment, bytes
    u8 source[16], target[16];
    u8 family, protocol, more; // more: fragments follow
};

// Reads the header at `at`; 0: it is none of IP.
static int read_packet(struct packet *packet, struct sk_buff *skb, const unsigned char *at) {
    union {
        struct ipv4 v4;
        struct ipv6 v6;
    } network;
    u16 protocol = __builtin_bswap16(skb->protocol);
    __builtin_memset(packet, 0, sizeof(*packet));
    if (protocol == ETHERNET_IPV4) {
        if (probe_read_kernel(&network.v4, sizeof(network.v4), at))
            return 0;
        if (network.v4.length >> 4 != 4)
            return 0;
        u16 fragment = __builtin_bswap16(network.v4.fragment);
        packet->family = FAMILY_IPV4;
        packet->protocol = network.v4.protocol;
        packet->headers = (network.v4.length & 15) * 4;
        packet->id = __builtin_bswap16(network.v4.id);
        packet->offset = (fragment & 0x1fff) * 8;
        packet->more = (fragment >> 13) & 1;
        __builtin_memcpy(packet->source, network.v4.source, 4);
        __builtin_memcpy(packet->target, network.v4.target, 4);
    } else if (protocol == ETHERNET_IPV6) {
        if (probe_read_kernel(&network.v6, sizeof(network.v6), at))
            return 0;
        if (network.v6.version[0] >> 4 != 6)
            return 0;
        packet->family = FAMILY_IPV6;
        packet->protocol = network.v6.next;
        packet->headers = sizeof(network.v6);
        __builtin_memcpy(packet->source, network.v6.source, 16);
        __builtin_memcpy(packet->target, network.v6.target, 16);
        if (packet->protocol == PROTOCOL_FRAGMENT) {
            struct ipv6_fragment part;
            if (probe_read_kernel(&part, sizeof(part), at + sizeof(network.v6)))
                return 0;
            u16 offset = __builtin_bswap16(part.offset);
            packet->protocol = part.next;
            packet->headers += sizeof(part);
            packet->id = __builtin_bswap32(part.id);
            packet->offset = offset & 0xfff8;
            packet->more = offset & 1;
        }
    } else {
        return 0;
    }
    // The length in the header of one that the device is to cut may be 0.
    packet->bytes = skb->len - (u32)(at - skb->data) - packet->headers;
    return 1;
}

// Where messages have their number in what their packets carry, in bytes. On a connection they may
// also have their length, by which they are told apart: `width` bytes at `length`, of which the most
// significant comes first if `big`, to which `uncounted` are added. A width of 0: they have none.
struct number {
    u32 offset;
    u32 length;
    u16 width, big;
    u32 uncounted;
};

// By protocol, and by the port that they go to or come from.
enum { TO, FROM };
#define NUMBER_OF(protocol, way, port) ((u32)(protocol) << 24 | (way) << 16 | (port))
MAP(MAP_HASH, u32, struct number, 256) numbers SECTION(".maps");

// Where the messages from a port to another one have their number; 0: nobody asked for it.
static struct number *number_at(u8 protocol, u16 source, u16 target) {
    u32 key = NUMBER_OF(protocol, TO, target);
    struct number *number = map_lookup_elem(&numbers, &key);
    if (number)
        return number;
    key = NUMBER_OF(protocol, FROM, source);
    return map_lookup_elem(&numbers, &key);
}

// Reads eight bytes at an offset into a word, or as many as there are; how many. `read` is the helper
// for the memory that it is in.
static u8 read_word(u64 *word, long (*read)(void *, u32, const void *), const unsigned char *at,
                    u64 bytes, u64 offset) {
    if (offset >= bytes)
        return 0;
    u64 left = bytes - offset;
    u32 size = left < sizeof(*word) ? left : sizeof(*word);
    return read(word, size, at + offset) ? 0 : size;
}

// Whether events of some ports, or packets at some devices, are recorded alone; set when they are
// loaded. Fragments but the first have no ports, and are recorded.
const volatile u8 some_ports, some_devices;
MAP(MAP_HASH, u16, u8, 256) chosen_ports SECTION(".maps");
struct device_name {
    char name[DEVICE_NAME];
};
MAP(MAP_HASH, struct device_name, u8, 64) chosen_devices SECTION(".maps");

// Whether one of two ports is chosen, in a namespace that is measured so.
static int is_chosen(u8 how, u16 one, u16 other) {
    return !some_ports || how == UNFILTERED || map_lookup_elem(&chosen_ports, &one) ||
           map_lookup_elem(&chosen_ports, &other);
}

static int is_chosen_socket(u8 how, struct sock *sk) {
    u16 other = sk->__sk_common.skc_dport;
    return is_chosen(how, sk->__sk_common.skc_num, __builtin_bswap16(other));
}

// Whether what is at the device of a packet is chosen.
static int is_chosen_device(u8 how, struct sk_buff *skb) {
    struct device_name key = {};
    if (!some_devices || how == UNFILTERED)
        return 1;
    probe_read_kernel_str(&key, sizeof(key), skb->dev->name);
    return map_lookup_elem(&chosen_devices, &key) != 0;
}

// The namespace of the device that a packet is at.
static u32 netns_of(struct sk_buff *skb) {
    return skb->dev->nd_net.net->ns.inum;
}

// Family, ports in the machine's order, and addresses of a socket: its own and the other's.
static void put_ends(struct sock *sk, u8 *family, u16 ports[2], u8 own[16], u8 other[16]) {
    *family = sk->__sk_common.skc_family;
    ports[0] = sk->__sk_common.skc_num;
    ports[1] = __builtin_bswap16(sk->__sk_common.skc_dport);
    if (*family == FAMILY_IPV4) {
        *(u32 *)own = sk->__sk_common.skc_rcv_saddr;
        *(u32 *)other = sk->__sk_common.skc_daddr;
    } else {
        probe_read_kernel(own, 16, &sk->__sk_common.skc_v6_rcv_saddr);
        probe_read_kernel(other, 16, &sk->__sk_common.skc_v6_daddr);
    }
}
