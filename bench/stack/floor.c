// Datagrams of 64 B there and back, by one end. It sends by a socket of UDP in either case, and
// looks for the answer without sleeping: by its socket, or in a ring of a packet socket that is
// mapped (Documentation/networking/packet_mmap.rst), in a namespace that has nothing but the far
// end of a pair. The server says when it is ready, and the client writes its times in µs.
//
// floor SOCKETS RINGS server|client ADDRESS PEER socket|ring COUNT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7000, HEADERS = 14 + 20 + 8, BYTES = 64, FRAME = 2048, FRAMES = 512, BLOCKS = 8 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void enter(const char *path)
{
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET))
        fail(path);
    close(namespace);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static char *map_ring(void)
{
    int ring = socket(AF_PACKET, SOCK_RAW, 0), version = TPACKET_V2;
    struct tpacket_req size = {.tp_block_size = FRAME * FRAMES / BLOCKS,
                               .tp_block_nr = BLOCKS,
                               .tp_frame_size = FRAME,
                               .tp_frame_nr = FRAMES};
    struct sockaddr_ll far = {.sll_family = AF_PACKET,
                              .sll_protocol = htons(ETH_P_ALL), // before traffic control
                              .sll_ifindex = (int)if_nametoindex("far")};
    if (ring < 0 || setsockopt(ring, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
        setsockopt(ring, SOL_PACKET, PACKET_RX_RING, &size, sizeof size))
        fail("a ring of a packet socket");
    void *mapped = mmap(NULL, FRAME * FRAMES, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    if (mapped == MAP_FAILED || bind(ring, (struct sockaddr *)&far, sizeof far))
        fail("the far end");
    return mapped;
}

static void await_frame(char *ring, unsigned *next)
{
    unsigned length;
    do {
        struct tpacket2_hdr *frame = (void *)(ring + *next * FRAME);
        // The kernel sets the status after it has written the frame.
        while (!(__atomic_load_n(&frame->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            ;
        length = frame->tp_len;
        __atomic_store_n(&frame->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        *next = (*next + 1) % FRAMES;
    } while (length != HEADERS + BYTES);
}

static void await_datagram(int udp, char *bytes)
{
    while (recv(udp, bytes, BYTES, MSG_DONTWAIT) != BYTES)
        if (errno != EAGAIN)
            fail("recv");
}

int main(int argc, char **argv)
{
    if (argc != 8)
        return 2;
    int is_client = !strcmp(argv[3], "client");
    cpu_set_t processor;
    CPU_ZERO(&processor);
    CPU_SET(is_client, &processor);
    if (sched_setaffinity(0, sizeof processor, &processor))
        fail("a processor of its own");
    char *ring = NULL, bytes[BYTES] = {0};
    if (!strcmp(argv[6], "ring")) {
        enter(argv[2]);
        ring = map_ring();
    }
    enter(argv[1]);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)}, peer = own;
    own.sin_addr.s_addr = inet_addr(argv[4]);
    peer.sin_addr.s_addr = inet_addr(argv[5]);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    if (udp < 0 || bind(udp, (struct sockaddr *)&own, sizeof own) ||
        connect(udp, (struct sockaddr *)&peer, sizeof peer))
        fail("a socket");
    if (!is_client && (puts("ready") < 0 || fflush(stdout)))
        return 1;
    unsigned next = 0;
    for (long left = atol(argv[7]); left; left--) {
        double begin = now();
        if (is_client && send(udp, bytes, BYTES, 0) != BYTES)
            fail("send");
        if (ring)
            await_frame(ring, &next);
        else
            await_datagram(udp, bytes);
        if (is_client)
            printf("%.3f\n", now() - begin);
        else if (send(udp, bytes, BYTES, 0) != BYTES)
            fail("send");
    }
    return 0;
}
