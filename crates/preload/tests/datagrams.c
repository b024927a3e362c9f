/* Programs that transfer datagrams by UDP and know nothing of the stack. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

#define expect(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

static struct sockaddr_storage other;
static socklen_t other_length;
static size_t most;

static void address(const char *host, const char *port) {
    struct sockaddr_in *v4 = (void *)&other;
    struct sockaddr_in6 *v6 = (void *)&other;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(atoi(port));
        other_length = sizeof *v4;
        most = 1472;
    } else {
        inet_pton(AF_INET6, host, &v6->sin6_addr);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(atoi(port));
        other_length = sizeof *v6;
        most = 1452;
    }
}

static char buffer[1 << 16];

/* Echoes to the first one that sends something, until it says so. */
static int echo(void) {
    int fd = socket(other.ss_family, SOCK_DGRAM, 0);
    /* The service is a thread of the test, and its descriptors are those of processes that the test
     * has forked, until these execute a program. */
    for (int i = 0; bind(fd, (void *)&other, other_length); i++) {
        if (errno != EADDRINUSE || i > 5000) die("bind");
        usleep(1000);
    }
    puts("ready");
    fflush(stdout);
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    ssize_t count = recvfrom(fd, buffer, sizeof buffer, 0, (void *)&from, &length);
    if (count < 0 || connect(fd, (void *)&from, length)) die("connect");
    for (;;) {
        if (count >= 5 && !memcmp(buffer, "late:", 5)) usleep(300000);
        if (count >= 5 && !memcmp(buffer, "more:", 5))
            for (int i = 0; i < 20; i++) send(fd, buffer, 5 + i, 0);
        /* Nobody may be there any more. */
        if (send(fd, buffer, count, 0) != count && errno != ECONNREFUSED) die("send");
        if (count == 3 && !memcmp(buffer, "end", 3)) return 0;
        do count = recv(fd, buffer, sizeof buffer, 0);
        while (count < 0 && (errno == EINTR || errno == ECONNREFUSED));
        if (count < 0) die("recv");
    }
}

static int called(void) {
    int fd = socket(other.ss_family, SOCK_DGRAM, 0);
    if (connect(fd, (void *)&other, other_length)) die("connect");
    struct timeval time = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    return fd;
}

static void fill(char *to, size_t size, int number) {
    for (size_t at = 0; at < size; at++) to[at] = (char)(number * 31 + at);
}

/* Has a datagram come back. */
static void trip(int fd, size_t size, int number) {
    static char out[1 << 16], in[1 << 16];
    fill(out, size, number);
    expect(send(fd, out, size, 0) == (ssize_t)size);
    ssize_t got = recv(fd, in, sizeof in, 0);
    if (got != (ssize_t)size) fprintf(stderr, "trip %d of %zu bytes: %zd\n", number, size, got);
    expect(got == (ssize_t)size);
    expect(!memcmp(in, out, size));
}

static void warm(int fd) {
    for (int i = 0; i < 4; i++) trip(fd, 10, i);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Round trips: the median and the 99.9th percentile in nanoseconds. */
static int trips(int fd, int count, int size) {
    int64_t *times = malloc(count * sizeof *times);
    warm(fd);
    for (int i = 0; i < count; i++) {
        int64_t begin = now();
        trip(fd, size, i);
        times[i] = now() - begin;
    }
    qsort(times, count, sizeof *times, compare);
    printf("%lld %lld\n", (long long)times[count / 2], (long long)times[count * 999LL / 1000]);
    return 0;
}

/* Many at a time: none is lost, and they come in their order. */
static int bursts(int fd) {
    warm(fd);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t out[20];
        for (uint32_t i = 0; i < 40; i++) {
            out[0] = round * 40 + i;
            expect(write(fd, out, sizeof out) == sizeof out);
        }
        for (uint32_t i = 0; i < 40; i++) {
            expect(read(fd, out, sizeof out) == sizeof out);
            expect(out[0] == round * 40 + i);
        }
    }
    puts("fine");
    return 0;
}

static void is_other(struct sockaddr_storage *from, socklen_t length) {
    expect(length == other_length);
    expect(!memcmp(from, &other, other.ss_family == AF_INET ? 8 : 4));
    expect(other.ss_family == AF_INET || !memcmp((char *)from + 8, (char *)&other + 8, 16));
}

/* All functions. */
static int mixes(int fd) {
    char in[4000], out[4000];
    warm(fd);
    size_t sizes[] = {0, 1, 64, 500, 600, most};
    for (int i = 0; i < 60; i++) trip(fd, sizes[i % 6], i);
    /* The kernel makes fragments of these. */
    for (int i = 0; i < 4; i++) trip(fd, most + 1 + i * 500, i);
    trip(fd, 64, 1);

    fill(out, 64, 5);
    expect(write(fd, out, 64) == 64);
    expect(read(fd, in, 10) == 10 && !memcmp(in, out, 10)); /* the rest is lost */
    expect(write(fd, out, 3) == 3);
    expect(recv(fd, in, 2, MSG_TRUNC) == 3);
    expect(write(fd, out, 3) == 3 && read(fd, in, 0) == 0);
    expect(read(fd, in, 100) == 3);
    expect(write(fd, out, 0) == 0);
    expect(recv(fd, in, 100, 0) == 0);
    expect(send(fd, out, 7, 0) == 7 && recv(fd, in, 0, 0) == 0);

    struct iovec parts[3] = {{out, 20}, {out + 20, 0}, {out + 20, 44}};
    expect(writev(fd, parts, 3) == 64);
    struct iovec places[2] = {{in, 30}, {in + 30, 100}};
    expect(readv(fd, places, 2) == 64 && !memcmp(in, out, 64));
    expect(writev(fd, parts + 1, 1) == 0);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    expect(sendmsg(fd, &message, 0) == 64);
    struct sockaddr_storage from = {0};
    struct msghdr got = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = places};
    got.msg_iovlen = 1;
    expect(recvmsg(fd, &got, 0) == 30 && (got.msg_flags & MSG_TRUNC));
    is_other(&from, got.msg_namelen);
    expect(send(fd, out, 5, MSG_NOSIGNAL) == 5);
    got.msg_flags = 77;
    expect(recvmsg(fd, &got, 0) == 5 && got.msg_flags == 0);
    memset(&from, 0, sizeof from);
    socklen_t length = sizeof from;
    expect(sendto(fd, out, 9, 0, NULL, 0) == 9);
    expect(recvfrom(fd, in, 100, 0, (void *)&from, &length) == 9);
    is_other(&from, length);
    expect(sendto(fd, out, 11, 0, (void *)&other, other_length) == 11);
    length = 4;
    expect(recvfrom(fd, in, 100, 0, (void *)&from, &length) == 11 && length == other_length);

    /* Nothing is there. */
    expect(recv(fd, in, 100, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    expect(read(fd, in, 100) == -1 && errno == EAGAIN);
    expect(write(fd, out, 12) == 12);
    struct pollfd polled = {fd, POLLIN, 0};
    expect(poll(&polled, 1, 5000) == 1 && polled.revents == POLLIN);
    int waiting = 0;
    expect(ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 12);
    expect(read(fd, in, 100) == 12);
    expect(poll(&polled, 1, 30) == 0);
    polled.events = POLLIN | POLLOUT;
    expect(poll(&polled, 1, 5000) == 1 && polled.revents == POLLOUT);
    /* A fragment comes by the kernel's socket. */
    polled.events = POLLIN;
    expect(write(fd, out, 3000) == 3000);
    expect(poll(&polled, 1, 5000) == 1 && polled.revents == POLLIN);
    expect(read(fd, in, 4000) == 3000);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval time = {0, 20000};
    expect(select(fd + 1, &set, NULL, NULL, &time) == 0);
    FD_SET(fd, &set);
    time.tv_sec = 5;
    expect(write(fd, out, 13) == 13 && select(fd + 1, &set, NULL, NULL, &time) == 1);
    expect(FD_ISSET(fd, &set) && read(fd, in, 100) == 13);
    fcntl(fd, F_SETFL, flags);

    struct timeval old, shorter = {0, 50000};
    socklen_t size = sizeof old;
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &old, &size);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &shorter, sizeof shorter);
    int64_t begin = now();
    expect(recv(fd, in, 100, 0) == -1 && errno == EAGAIN && now() - begin > 40000000);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &old, sizeof old);
    expect(write(fd, "late:", 5) == 5);
    expect(recv(fd, in, 100, MSG_WAITALL) == 5);
    warm(fd);
    puts("fine");
    return 0;
}

/* Waits by epoll, by levels and by edges. */
static int polls(int fd) {
    char in[4000], out[4000] = {0};
    struct epoll_event found[4];
    uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    int other_end[2];
    expect(pipe(other_end) == 0);
    for (int before = 0; before < 2; before++) {
        int epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 8};
        expect(epoll_ctl(epoll, EPOLL_CTL_ADD, other_end[0], &event) == 0);
        event.data.u64 = 7;
        if (before) warm(fd);
        expect(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
        expect(epoll_wait(epoll, found, 4, 10) == 0);
        warm(fd);
        for (int kind = 0; kind < 3; kind++) {
            event.events = kinds[kind];
            expect(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
            expect(epoll_wait(epoll, found, 4, 10) == 0);
            /* The second one comes in fragments. */
            for (int size = 50; size <= 3050; size += 3000) {
                expect(write(fd, out, size) == size);
                expect(epoll_wait(epoll, found, 4, 5000) == 1);
                expect(found[0].events == EPOLLIN && found[0].data.u64 == 7);
                if (kind != 0) expect(epoll_wait(epoll, found, 4, 10) == 0);
                if (kind == 0) expect(epoll_wait(epoll, found, 4, 5000) == 1);
                expect(recv(fd, in, sizeof in, MSG_DONTWAIT) == size);
                expect(recv(fd, in, sizeof in, MSG_DONTWAIT) == -1 && errno == EAGAIN);
                if (kind == 2) expect(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
            }
        }
        event.events = EPOLLIN | EPOLLOUT;
        expect(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
        expect(epoll_wait(epoll, found, 4, 5000) == 1 && found[0].events == EPOLLOUT);
        expect(write(other_end[1], "x", 1) == 1 && epoll_wait(epoll, found, 4, 5000) == 2);
        expect(read(other_end[0], in, 1) == 1);
        expect(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0);
        expect(write(fd, out, 50) == 50 && epoll_wait(epoll, found, 4, 20) == 0);
        expect(recv(fd, in, sizeof in, 0) == 50);
        close(epoll);
    }
    puts("fine");
    return 0;
}

static volatile sig_atomic_t handled;
static void handle(int number) { handled = number; }

/* A handler ends a call that waits, or the call goes on. */
static int signals(int fd) {
    char in[100];
    struct sigaction action = {.sa_handler = handle};
    struct itimerval soon = {{0, 0}, {0, 50000}};
    struct timeval never = {0, 0}, old;
    socklen_t size = sizeof old;
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &old, &size);
    warm(fd);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    expect(recv(fd, in, 100, 0) == -1 && errno == EINTR && handled == SIGALRM);
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    handled = 0;
    setitimer(ITIMER_REAL, &soon, NULL);
    expect(write(fd, "late:", 5) == 5);
    expect(recv(fd, in, 100, 0) == 5 && handled == SIGALRM);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &old, sizeof old);
    warm(fd);
    puts("fine");
    return 0;
}

/* No socket is at the other end. */
static int refused(int fd) {
    char in[10];
    expect(send(fd, "x", 1, 0) == 1);
    expect(recv(fd, in, 10, 0) == -1 && errno == ECONNREFUSED);
    for (int i = 0; i < 3; i++) {
        expect(send(fd, "x", 1, 0) == 1);
        expect(recv(fd, in, 10, 0) == -1 && errno == ECONNREFUSED);
        expect(send(fd, "x", 1, 0) == 1);
        struct pollfd polled = {fd, POLLIN, 0};
        expect(poll(&polled, 1, 5000) == 1 && (polled.revents & POLLERR));
        usleep(1000);
        expect(send(fd, "x", 1, 0) == -1 && errno == ECONNREFUSED);
    }
    puts("fine");
    return 0;
}

static void take_more(int fd) {
    char in[100];
    for (int i = 0; i <= 20; i++)
        expect(recv(fd, in, 100, MSG_DONTWAIT) == (i < 20 ? 5 + i : 5) && !memcmp(in, "more:", 5));
    expect(recv(fd, in, 100, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static void ask_for_more(int fd) {
    warm(fd);
    expect(send(fd, "more:", 5, 0) == 5);
    usleep(200000);
}

/* What waits is found by a second descriptor, and by another process. */
static int dups(int fd) {
    ask_for_more(fd);
    int second = dup(fd);
    take_more(second);
    warm(fd);
    puts("fine");
    return 0;
}

static int forks(int fd) {
    ask_for_more(fd);
    int status;
    pid_t child = fork();
    if (child == 0) {
        take_more(fd);
        exit(0);
    }
    expect(waitpid(child, &status, 0) == child && status == 0);
    warm(fd);
    puts("fine");
    return 0;
}

/* The same by calls that the kernel serves. */
static int back(int fd) {
    char in[100] = {0};
    ask_for_more(fd);
    expect(recv(fd, in, 100, MSG_PEEK) == 5);
    take_more(fd);
    warm(fd);
    puts("fine");
    return 0;
}

/* Has so many datagrams come back, whose sizes are these. */
static void come_back(int fd, const char *out, const size_t *sizes, int count) {
    char in[2000];
    for (int i = 0; i < count; out += sizes[i++]) {
        ssize_t got = recv(fd, in, sizeof in, 0);
        if (got != (ssize_t)sizes[i]) fprintf(stderr, "datagram %d has %zd bytes\n", i, got);
        expect(got == (ssize_t)sizes[i] && !memcmp(in, out, got));
    }
}

/* Many in one call. */
static int many(int fd) {
    char in[4][100];
    struct iovec parts[4];
    struct mmsghdr all[4] = {0};
    struct sockaddr_storage from[4];
    warm(fd);
    for (int i = 0; i < 4; i++) {
        fill(in[i], 100, i);
        parts[i] = (struct iovec){in[i], 10 + i};
        all[i].msg_hdr.msg_iov = &parts[i];
        all[i].msg_hdr.msg_iovlen = 1;
    }
    expect(sendmmsg(fd, all, 4, 0) == 4);
    for (int i = 0; i < 4; i++) {
        expect(all[i].msg_len == 10u + i);
        memset(in[i], 0, 100);
        parts[i].iov_len = 100;
        all[i].msg_hdr.msg_name = &from[i];
        all[i].msg_hdr.msg_namelen = sizeof from[i];
    }
    expect(recvmmsg(fd, all, 4, 0, NULL) == 4);
    for (int i = 0; i < 4; i++) {
        char expected[100];
        fill(expected, 100, i);
        expect(all[i].msg_len == 10u + i && !memcmp(in[i], expected, 10 + i));
        is_other(&from[i], all[i].msg_hdr.msg_namelen);
        all[i].msg_hdr.msg_name = NULL;
    }
    /* One is there; the others are not waited for, or not for long. */
    expect(send(fd, "abc", 3, 0) == 3);
    expect(recvmmsg(fd, all, 4, MSG_WAITFORONE, NULL) == 1 && all[0].msg_len == 3);
    expect(recvmmsg(fd, all, 4, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
    struct timespec time = {0, 0}, wrong = {0, 2000000000}, much = {100, 0};
    expect(send(fd, "abc", 3, 0) == 3);
    expect(recvmmsg(fd, all, 4, 0, &wrong) == -1 && errno == EINVAL);
    expect(recvmmsg(fd, all, 4, 0, &time) == 1 && time.tv_sec == 0 && time.tv_nsec == 0);
    expect(send(fd, "abc", 3, 0) == 3 && send(fd, "abcd", 4, 0) == 4);
    expect(recvmmsg(fd, all, 2, 0, &much) == 2 && all[1].msg_len == 4);
    expect(much.tv_sec == 99 && much.tv_nsec > 0);
    expect(recvmmsg(fd, all, 0, 0, NULL) == 0 && sendmmsg(fd, all, 0, 0) == 0);
    /* What is too large ends the call. */
    static char large[70000];
    parts[1] = (struct iovec){large, sizeof large};
    errno = 0;
    expect(sendmmsg(fd, all, 4, 0) == 1 && errno == 0);
    expect(recv(fd, in[0], 100, 0) == 100);
    expect(sendmmsg(fd, all + 1, 3, 0) == -1 && errno == EMSGSIZE);
    warm(fd);
    puts("fine");
    return 0;
}

/* A call that becomes several datagrams (UDP_SEGMENT). */
static int segments(int fd) {
    static char out[4000];
    fill(out, sizeof out, 3);
    size_t sizes[] = {300, 300, 300, 100}, one[] = {300};
    for (int before = 1; before >= 0; before--) {
        int size = 300, found = 0;
        socklen_t length = sizeof found;
        if (!before) warm(fd);
        expect(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size) == 0);
        if (before) warm(fd);
        expect(send(fd, out, 1000, 0) == 1000);
        come_back(fd, out, sizes, 4);
        struct iovec parts[2] = {{out, 450}, {out + 450, 550}};
        expect(writev(fd, parts, 2) == 1000);
        come_back(fd, out, sizes, 4);
        expect(send(fd, out, 300, 0) == 300);
        come_back(fd, out, one, 1);
        expect(getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &found, &length) == 0 && found == 300);
        size = 2000; /* The kernel asks for one packet each. */
        expect(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size) == 0);
        expect(send(fd, out, 4000, 0) == -1);
        expect(errno == EMSGSIZE || errno == EINVAL); /* as older kernels say it */
        size = 0;
        expect(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size) == 0);
        warm(fd);
    }
    /* As a call has it. */
    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof(uint16_t)), IPPROTO_UDP, UDP_SEGMENT}};
    uint16_t size = 300;
    memcpy(CMSG_DATA(&control.header), &size, sizeof size);
    struct iovec part = {out, 1000};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    expect(sendmsg(fd, &message, 0) == 1000);
    come_back(fd, out, sizes, 4);
    warm(fd);
    puts("fine");
    return 0;
}

/* Connects to another one. */
static int again(int fd) {
    char in[10];
    warm(fd);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    expect(connect(fd, &none, sizeof none) == 0);
    expect(send(fd, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    expect(connect(fd, (void *)&other, other_length) == 0);
    expect(recv(fd, in, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    puts("fine");
    return 0;
}

/* Never connects. */
static int unconnected(int fd) {
    char in[100];
    close(fd);
    fd = socket(other.ss_family, SOCK_DGRAM, 0);
    for (int i = 0; i < 10; i++) {
        expect(sendto(fd, "hello", 5, 0, (void *)&other, other_length) == 5);
        expect(recv(fd, in, 100, 0) == 5);
    }
    puts("fine");
    return 0;
}

/* The service ends while datagrams wait. */
static int outlives(int fd) {
    ask_for_more(fd);
    puts("ready");
    fflush(stdout);
    usleep(1000000);
    take_more(fd);
    for (int i = 0; i < 100; i++) warm(fd);
    trip(fd, 3000, 1);
    puts("fine");
    return 0;
}

int main(int count, char **words) {
    if (count < 5) return 2;
    address(words[3], words[4]);
    if (!strcmp(words[1], "answer")) return echo();
    int fd = called(), result = 2;
    struct {
        const char *name;
        int (*act)(int);
    } acts[] = {
        {"bursts", bursts}, {"mixes", mixes}, {"polls", polls}, {"signals", signals},
        {"refused", refused}, {"dups", dups}, {"forks", forks}, {"back", back}, {"many", many},
        {"segments", segments},
        {"again", again}, {"unconnected", unconnected}, {"outlives", outlives},
    };
    if (!strcmp(words[2], "trips")) result = trips(fd, atoi(words[5]), atoi(words[6]));
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(words[2], acts[i].name)) result = acts[i].act(fd);
    send(fd, "end", 3, 0);
    return result;
}
