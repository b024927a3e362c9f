// Datagrams of 64 B there and back, by one end. It sends by a socket of UDP in either case, and
// looks for the answer without sleeping: by its socket, or in a ring that a program in the kernel
// writes to (Documentation/bpf/ringbuf.rst), which it has mapped. The server says when it is ready,
// and the client writes its times in µs.
//
// floor SOCKETS server|client ADDRESS PEER socket|RING COUNT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7000, BYTES = 64, RING = 1 << 20 };

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

static uint64_t *reader;
static const uint64_t *kernel;
static const char *records;

// Maps the ring of this file: the reader's position, the kernel's, and the records.
static void map_ring(const char *path)
{
    union bpf_attr named = {.pathname = (uintptr_t)path};
    int ring = (int)syscall(SYS_bpf, BPF_OBJ_GET, &named, sizeof named);
    long page = sysconf(_SC_PAGESIZE);
    if (ring < 0)
        fail(path);
    void *first = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    void *second = mmap(NULL, page + 2 * RING, PROT_READ, MAP_SHARED, ring, page);
    if (first == MAP_FAILED || second == MAP_FAILED)
        fail("the ring");
    reader = first;
    kernel = second;
    records = (const char *)second + page;
}

static void await_frame(void)
{
    while (__atomic_load_n(kernel, __ATOMIC_ACQUIRE) == *reader)
        ;
    const uint32_t *header = (const void *)(records + (*reader & (RING - 1)));
    uint32_t length;
    while ((length = __atomic_load_n(header, __ATOMIC_ACQUIRE)) & BPF_RINGBUF_BUSY_BIT)
        ;
    uint64_t next = *reader + ((BPF_RINGBUF_HDR_SZ + length + 7) & ~7U);
    __atomic_store_n(reader, next, __ATOMIC_RELEASE);
}

static void await_datagram(int udp, char *bytes)
{
    while (recv(udp, bytes, BYTES, MSG_DONTWAIT) != BYTES)
        if (errno != EAGAIN)
            fail("recv");
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    int is_client = !strcmp(argv[2], "client");
    cpu_set_t processor;
    CPU_ZERO(&processor);
    CPU_SET(is_client, &processor);
    if (sched_setaffinity(0, sizeof processor, &processor))
        fail("a processor of its own");
    char bytes[BYTES] = {0};
    if (strcmp(argv[5], "socket"))
        map_ring(argv[5]);
    enter(argv[1]);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)}, peer = own;
    own.sin_addr.s_addr = inet_addr(argv[3]);
    peer.sin_addr.s_addr = inet_addr(argv[4]);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    if (udp < 0 || bind(udp, (struct sockaddr *)&own, sizeof own) ||
        connect(udp, (struct sockaddr *)&peer, sizeof peer))
        fail("a socket");
    if (!is_client && (puts("ready") < 0 || fflush(stdout)))
        return 1;
    for (long left = atol(argv[6]); left; left--) {
        double begin = now();
        if (is_client && send(udp, bytes, BYTES, 0) != BYTES)
            fail("send");
        if (reader)
            await_frame();
        else
            await_datagram(udp, bytes);
        if (is_client)
            printf("%.3f\n", now() - begin);
        else if (send(udp, bytes, BYTES, 0) != BYTES)
            fail("send");
    }
    return 0;
}
