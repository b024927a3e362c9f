/* Echoes for two connections by io_uring(7), by system calls alone. The first messages of each come
 * and go by read() and write(): before there is a ring, and with it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int ring = -1;
static struct io_uring_sqe *asked;
static struct io_uring_cqe *done;
static uint32_t *asked_tail, *asked_mask, *asked_at, *done_head, *done_tail, *done_mask;

static void *map(size_t size, off_t place) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, place);
    if (at == MAP_FAILED) die("mmap");
    return at;
}

static void make_ring(void) {
    struct io_uring_params is = {0};
    ring = syscall(SYS_io_uring_setup, 4, &is);
    if (ring < 0) die("the kernel lets this program have no io_uring");
    char *sq = map(is.sq_off.array + is.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
    char *cq = map(is.cq_off.cqes + is.cq_entries * sizeof *done, IORING_OFF_CQ_RING);
    asked = map(is.sq_entries * sizeof *asked, IORING_OFF_SQES);
    asked_tail = (uint32_t *)(sq + is.sq_off.tail);
    asked_mask = (uint32_t *)(sq + is.sq_off.ring_mask);
    asked_at = (uint32_t *)(sq + is.sq_off.array);
    done_head = (uint32_t *)(cq + is.cq_off.head);
    done_tail = (uint32_t *)(cq + is.cq_off.tail);
    done_mask = (uint32_t *)(cq + is.cq_off.ring_mask);
    done = (struct io_uring_cqe *)(cq + is.cq_off.cqes);
}

/* Does one thing, and waits until it is done, without a word of the C library. */
static long enter(void) {
#ifdef __x86_64__
    register long mask __asm__("r10") = IORING_ENTER_GETEVENTS, set __asm__("r8") = 0,
                  size __asm__("r9") = 0;
    long result = SYS_io_uring_enter;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"((long)ring), "S"(1L), "d"(1L), "r"(mask), "r"(set), "r"(size)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
#endif
}

static int by_ring(int what, int fd, char *at, size_t size) {
    uint32_t tail = *asked_tail, place = tail & *asked_mask;
    asked[place] = (struct io_uring_sqe){
        .opcode = what, .fd = fd, .addr = (uintptr_t)at, .len = size};
    asked_at[place] = place;
    __atomic_store_n(asked_tail, tail + 1, __ATOMIC_RELEASE);
    if (enter() < 0) die("io_uring_enter");
    uint32_t head = *done_head;
    if (head == __atomic_load_n(done_tail, __ATOMIC_ACQUIRE)) die("nothing is done");
    int result = done[head & *done_mask].res;
    __atomic_store_n(done_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static void echo(int fd) {
    static char buffer[1 << 16];
    for (int message = 0; message < 5; message++) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count <= 0 || write(fd, buffer, count) != count) die("echo");
    }
    if (ring < 0) make_ring();
    for (;;) {
        int count = by_ring(IORING_OP_RECV, fd, buffer, sizeof buffer);
        if (count == 0) break;
        if (count < 0) errno = -count, die("receive");
        if (by_ring(IORING_OP_SEND, fd, buffer, count) != count) die("send");
    }
    close(fd);
}

int main(int count, char **words) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7000)};
    if (count != 2) {
        /* Whether there can be a ring. */
        make_ring();
        return 0;
    }
    inet_pton(AF_INET, words[1], &at.sin_addr);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 8)) die("listen");
    puts("ready");
    fflush(stdout);
    for (int connection = 0; connection < 2; connection++) echo(accept(fd, NULL, NULL));
    puts("fine");
    return 0;
}
