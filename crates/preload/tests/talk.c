/* Programs that transfer data by TCP and know nothing of the stack. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in address(const char *host, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    inet_pton(AF_INET, host, &to.sin_addr);
    return to;
}

static int listener;

static int answer(const char *host, const char *port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = address(host, port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 8)) die("listen");
    puts("ready");
    fflush(stdout);
    listener = fd;
    int connection = accept(fd, NULL, NULL);
    if (connection < 0) die("accept");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return connection;
}

static int call(const char *host, const char *port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = address(host, port);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_all(int fd, const char *from, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) die("send");
        from += sent;
        size -= sent;
    }
}

static int echo(int fd) {
    static char buffer[1 << 16];
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) die("read");
        if (count == 0) return 0;
        send_all(fd, buffer, count);
    }
}

/* Echoes until the other end's stream has ended, or was reset. */
static int echo_to_end(int fd) {
    static char buffer[1 << 16];
    puts("connected");
    fflush(stdout);
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count > 0) count = send(fd, buffer, count, MSG_NOSIGNAL);
        if (count < 0 && errno != ECONNRESET && errno != EPIPE) die("echo");
        if (count <= 0) break;
    }
    puts("ended");
    return 0;
}

/* Echoes for two connections, one after the other. */
static int echo_twice(int fd) {
    echo(fd);
    close(fd);
    fd = accept(listener, NULL, NULL);
    return fd < 0 ? 1 : echo(fd);
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
    char *out = malloc(size), *in = malloc(size);
    int64_t *times = malloc(count * sizeof *times);
    for (int i = 0; i < count; i++) {
        for (int at = 0; at < size; at++) out[at] = (char)(i * 31 + at);
        int64_t begin = now();
        send_all(fd, out, size);
        for (int got = 0; got < size;) {
            ssize_t more = recv(fd, in + got, size - got, 0);
            if (more < 0 && errno == EINTR) continue;
            if (more <= 0) die("recv");
            got += more;
        }
        times[i] = now() - begin;
        if (memcmp(in, out, size)) {
            fprintf(stderr, "round trip %d has other bytes\n", i);
            return 1;
        }
    }
    qsort(times, count, sizeof *times, compare);
    printf("%lld %lld\n", (long long)times[count / 2], (long long)times[count * 999LL / 1000]);
    return 0;
}

static volatile sig_atomic_t signals;
static int handled_fd = -1;

static void count_signal(int signal) {
    (void)signal;
    signals++;
}

/* A handler that itself writes to the connection. */
static void write_signal(int signal) {
    (void)signal;
    int before = errno;
    signals++;
    if (write(handled_fd, "s", 1) != 1) abort();
    errno = before;
}

static void on(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    struct sigaction found;
    if (sigaction(number, &action, NULL) || sigaction(number, NULL, &found)) die("sigaction");
    if (found.sa_handler != handler || (found.sa_flags & SA_RESTART) != (flags & SA_RESTART)) {
        fputs("sigaction tells another handler\n", stderr);
        exit(1);
    }
}

static void every(int microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "not so: %s (errno %s)\n", what, strerror(errno));
        exit(1);
    }
}

static void warm(int fd) {
    char buffer[4];
    for (int i = 0; i < 3; i++) {
        send_all(fd, "ping", 4);
        expect(recv(fd, buffer, 4, MSG_WAITALL) == 4 && !memcmp(buffer, "ping", 4), "an echo");
    }
}

/* Error numbers and time-outs; the other end echoes. */
static int errors(int fd) {
    char buffer[16];
    warm(fd);
    errno = 0;
    expect(recv(fd, buffer, 4, MSG_DONTWAIT) == -1 && errno == EAGAIN, "EAGAIN of MSG_DONTWAIT");
    expect(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "O_NONBLOCK");
    errno = 0;
    expect(read(fd, buffer, 4) == -1 && errno == EAGAIN, "EAGAIN of O_NONBLOCK");
    expect(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0, "no O_NONBLOCK");
    struct timeval time = {0, 50000};
    expect(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0, "SO_RCVTIMEO");
    int64_t begin = now();
    errno = 0;
    expect(read(fd, buffer, 4) == -1 && errno == EAGAIN, "EAGAIN of SO_RCVTIMEO");
    expect(now() - begin >= 50000000 && now() - begin < 2000000000, "the time of SO_RCVTIMEO");
    time.tv_usec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    struct pollfd polled = {fd, POLLIN | POLLOUT, 0};
    expect(poll(&polled, 1, 1000) == 1 && polled.revents == POLLOUT, "POLLOUT");
    polled.events = POLLIN;
    expect(poll(&polled, 1, 20) == 0, "no POLLIN");
    send_all(fd, "some", 4);
    expect(poll(&polled, 1, 1000) == 1 && polled.revents == POLLIN, "POLLIN");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval second = {1, 0};
    expect(select(fd + 1, &set, NULL, NULL, &second) == 1 && FD_ISSET(fd, &set), "select");
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    expect(recvfrom(fd, buffer, 16, 0, (struct sockaddr *)&from, &length) == 4, "recvfrom");
    expect(length == 0, "no address");
    on(SIGALRM, count_signal, 0);
    every(20000);
    errno = 0;
    expect(read(fd, buffer, 4) == -1 && errno == EINTR && signals > 0, "EINTR");
    /* With SA_RESTART it goes on: a child has the other end say something. */
    on(SIGALRM, count_signal, SA_RESTART);
    signals = 0;
    warm(fd);
    send_all(fd, "slow", 4);
    expect(recv(fd, buffer, 4, MSG_WAITALL) == 4, "SA_RESTART");
    /* poll(2) never goes on, nor does a call with a time-out. */
    errno = 0;
    expect(poll(&polled, 1, -1) == -1 && errno == EINTR, "EINTR of poll");
    FD_ZERO(&set);
    FD_SET(fd, &set);
    errno = 0;
    expect(select(fd + 1, &set, NULL, NULL, NULL) == -1 && errno == EINTR, "EINTR of select");
    time.tv_sec = 10;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    errno = 0;
    expect(read(fd, buffer, 4) == -1 && errno == EINTR, "EINTR with a time-out");
    time.tv_sec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    every(0);
    /* The mask of ppoll(2) lets a signal in that is blocked. */
    sigset_t blocked, open;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    signals = 0;
    kill(getpid(), SIGALRM);
    struct timespec ten = {10, 0};
    errno = 0;
    expect(ppoll(&polled, 1, &ten, &open) == -1 && errno == EINTR && signals == 1, "ppoll");
    sigprocmask(SIG_SETMASK, &open, NULL);
    warm(fd);
    /* What the stack does not do is the kernel's. */
    send_all(fd, "peek", 4);
    usleep(50000);
    expect(recv(fd, buffer, 4, MSG_PEEK) == 4 && !memcmp(buffer, "peek", 4), "MSG_PEEK");
    expect(recv(fd, buffer, 4, 0) == 4 && !memcmp(buffer, "peek", 4), "what was peeked");
    warm(fd);
    puts("fine");
    return 0;
}

/* A descriptor of the kernel has something to tell while the connection has not. */
static int mixes(int fd) {
    warm(fd);
    for (int i = 0; i < 10; i++) {
        int timer = timerfd_create(CLOCK_MONOTONIC, 0), epoll = epoll_create1(0);
        struct itimerspec soon = {{0, 0}, {0, 20000000}};
        struct pollfd polled[2] = {{fd, POLLIN, 0}, {timer, POLLIN, 0}};
        timerfd_settime(timer, 0, &soon, NULL);
        expect(poll(polled, 2, 5000) == 1 && polled[1].revents == POLLIN, "poll of a timer");
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        FD_SET(timer, &set);
        struct timeval most = {5, 0};
        timerfd_settime(timer, 0, &soon, NULL);
        expect(select(timer + 1, &set, NULL, NULL, &most) == 1 && FD_ISSET(timer, &set),
               "select of a timer");
        struct epoll_event told[2], of_timer = {EPOLLIN, {.fd = timer}}, of_fd = {EPOLLIN, {.fd = fd}};
        expect(epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &of_timer) == 0, "epoll_ctl of a timer");
        expect(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &of_fd) == 0, "epoll_ctl");
        for (int room = 1; room <= 2; room++) {
            timerfd_settime(timer, 0, &soon, NULL);
            expect(epoll_wait(epoll, told, room, 5000) == 1, "epoll_wait");
            expect(told->data.fd == timer && told->events == EPOLLIN, "epoll of a timer");
        }
        close(timer);
        close(epoll);
    }
    warm(fd);
    puts("fine");
    return 0;
}

static void expect_echo(int fd, const char *bytes, int size) {
    static char in[300000];
    for (int got = 0; got < size;) {
        ssize_t more = recv(fd, in + got, size - got, 0);
        if (more <= 0) die("recv");
        got += more;
    }
    expect(!memcmp(in, bytes, size), "the bytes of the file");
}

/* Files go by sendfile(2). A pipe is none. */
static int sends_files(int fd) {
    static char bytes[300000];
    int file = memfd_create("file", 0), ends[2];
    for (int i = 0; i < 300000; i++) bytes[i] = (char)(i * 31 + i / 1000);
    expect(write(file, bytes, sizeof bytes) == sizeof bytes && pipe(ends) == 0, "a file");
    warm(fd);
    off_t at = 1000;
    expect(sendfile(fd, file, &at, 5000) == 5000 && at == 6000, "sendfile from a place");
    expect(lseek(file, 0, SEEK_CUR) == 300000, "the file's own place");
    expect_echo(fd, bytes + 1000, 5000);
    lseek(file, 290000, SEEK_SET);
    expect(sendfile(fd, file, NULL, 50000) == 10000, "sendfile to the end");
    expect(lseek(file, 0, SEEK_CUR) == 300000, "the place after it");
    expect_echo(fd, bytes + 290000, 10000);
    expect(sendfile(fd, file, NULL, 10) == 0 && sendfile(fd, file, &at, 0) == 0, "nothing");
    at = 0;
    expect(sendfile64(fd, file, &at, 300000) == 300000 && at == 300000, "several pieces");
    expect_echo(fd, bytes, 300000);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    /* It sends what there is room for, and then says EAGAIN. */
    ssize_t all = 0, more;
    for (at = 0; (more = sendfile(fd, file, &at, 300000 - at)) > 0; at %= 300000) all += more;
    expect(more == -1 && errno == EAGAIN && all > 300000, "EAGAIN");
    expect(at == all % 300000, "the place where there was no more room");
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    for (; all > 0; all -= more) {
        more = all < 300000 ? all : 300000;
        expect_echo(fd, bytes, (int)more);
    }
    errno = 0;
    expect(sendfile(fd, ends[0], NULL, 10) == -1 && errno == EINVAL, "EINVAL of a pipe");
    puts("fine");
    return 0;
}

/* Pieces, messages and counts; stdio at last. */
static int pieces(int fd) {
    char one[3], two[5], three[40];
    warm(fd);
    struct iovec out[3] = {{"abc", 3}, {NULL, 0}, {"defgh", 5}};
    struct iovec in[3] = {{one, 3}, {NULL, 0}, {two, 5}};
    expect(writev(fd, out, 3) == 8, "writev");
    int count = 0;
    while (count < 8) expect(ioctl(fd, FIONREAD, &count) == 0 && count <= 8, "FIONREAD");
    expect(readv(fd, in, 3) == 8, "readv");
    expect(!memcmp(one, "abc", 3) && !memcmp(two, "defgh", 5), "their bytes");
    struct iovec many[12];
    for (int i = 0; i < 12; i++) many[i] = (struct iovec){three + i, 1};
    memcpy(three, "twelve bytes", 12);
    struct msghdr message = {.msg_iov = many, .msg_iovlen = 12};
    expect(sendmsg(fd, &message, 0) == 12, "sendmsg");
    memset(three, 0, 12);
    char space[64], name[64];
    message.msg_control = space, message.msg_controllen = sizeof space;
    message.msg_name = name, message.msg_namelen = sizeof name;
    expect(recvmsg(fd, &message, MSG_WAITALL) == 12, "recvmsg");
    expect(!memcmp(three, "twelve bytes", 12), "its bytes");
    expect(message.msg_controllen == 0 && message.msg_namelen == 0, "nothing else");
    expect(ioctl(fd, SIOCOUTQ, &count) == 0 && count >= 0 && count <= 12, "SIOCOUTQ");
    int flag = 0;
    socklen_t length = sizeof flag;
    expect(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &flag, &length) == 0 && flag, "TCP_NODELAY");
    flag = 0;
    expect(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &flag, sizeof flag) == 0, "Nagle");
    warm(fd);
    expect(getsockopt(fd, SOL_SOCKET, SO_ERROR, &flag, &length) == 0 && flag == 0, "SO_ERROR");
    expect(read(fd, one, 0) == 0 && write(fd, one, 0) == 0, "no bytes");
    errno = 0;
    expect(lseek(fd, 0, SEEK_CUR) == -1 && errno == ESPIPE, "ESPIPE");
    FILE *file = fdopen(dup(fd), "r+");
    expect(file && fputs("a line\n", file) >= 0 && fflush(file) == 0, "fputs");
    expect(fgets(three, sizeof three, file) && !strcmp(three, "a line\n"), "fgets");
    dprintf(fd, "%s %.1f %d\n", "number", 1.5, 7);
    expect(fgets(three, sizeof three, file) && !strcmp(three, "number 1.5 7\n"), "dprintf");
    struct tcp_info info;
    length = sizeof info;
    expect(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0, "TCP_INFO");
    warm(fd);
    puts("fine");
    return 0;
}

/* A handler writes to the connection while the program does. */
static int handlers(int fd) {
    warm(fd);
    handled_fd = fd;
    on(SIGALRM, write_signal, SA_RESTART);
    every(200);
    int begun = 0, got = 0;
    char buffer[4096];
    int64_t begin = now();
    while (now() - begin < 1000000000) {
        send_all(fd, "data", 4);
        begun += 4;
        ssize_t count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (count > 0) got += count;
    }
    every(0);
    while (got < begun + signals) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) die("read");
        got += count;
    }
    expect(signals > 100 && got == begun + signals, "all that was written comes back");
    puts("fine");
    return 0;
}

static void *reader(void *of) {
    int fd = *(int *)of;
    char buffer[1 << 14];
    uint64_t sum = 0, count = 0;
    for (;;) {
        ssize_t more = read(fd, buffer, sizeof buffer);
        if (more <= 0) break;
        for (ssize_t at = 0; at < more; at++) sum = sum * 31 + (unsigned char)buffer[at];
        count += more;
        if (count >= 200000000) break;
    }
    return (void *)sum;
}

/* One thread writes, another one reads. */
static int threads(int fd) {
    pthread_t thread;
    pthread_create(&thread, NULL, reader, &fd);
    uint64_t sum = 0;
    char buffer[20000];
    for (int i = 0; i < 10000; i++) {
        for (size_t at = 0; at < sizeof buffer; at++) {
            buffer[at] = (char)((i * 7 + at) >> 3);
            sum = sum * 31 + (unsigned char)buffer[at];
        }
        send_all(fd, buffer, sizeof buffer);
    }
    void *found;
    pthread_join(thread, &found);
    expect((uint64_t)found == sum, "the same stream");
    puts("fine");
    return 0;
}

/* Forks with a connection: the child says the last word. */
static int forks(int fd) {
    char buffer[8];
    warm(fd);
    pid_t child = fork();
    if (child == 0) {
        send_all(fd, "child", 5);
        expect(recv(fd, buffer, 5, MSG_WAITALL) == 5 && !memcmp(buffer, "child", 5), "its echo");
        _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0, "the child is fine");
    warm(fd);
    puts("fine");
    return 0;
}

/* Gives the connection to another program, as its standard input and output. */
static int executes(int fd) {
    warm(fd);
    fflush(stdout);
    dup2(fd, 0);
    dup2(fd, 1);
    send_all(fd, "hello from the shell\n", 0);
    execlp("sh", "sh", "-c", "echo word; read answer; echo got $answer >&2", (char *)NULL);
    die("exec");
    return 1;
}

/* Ends with data that were not sent: the other end does not read for a time. */
static int unsent(int fd) {
    static char block[1 << 16];
    warm(fd);
    for (size_t at = 0; at < sizeof block; at++) block[at] = (char)(at % 251);
    for (int i = 0; i < 40; i++) send_all(fd, block, sizeof block);
    exit(0);
}

/* The other end of `unsent`: reads it all, slowly. */
static int slow(int fd) {
    static char buffer[1 << 16];
    for (int left = 12; left > 0;) {
        ssize_t count = read(fd, buffer, left);
        if (count <= 0) die("read");
        send_all(fd, buffer, count);
        left -= count;
    }
    usleep(300000);
    long at = 0;
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0) die("read");
        if (count == 0) break;
        for (ssize_t i = 0; i < count; i++, at++)
            expect(buffer[i] == (char)(at % 65536 % 251), "the same bytes");
    }
    printf("%ld\n", at);
    return 0;
}

/* The other end resets. */
static int is_reset(int fd) {
    char buffer[8];
    warm(fd);
    send_all(fd, "reset", 5);
    errno = 0;
    expect(read(fd, buffer, 8) == -1 && errno == ECONNRESET, "ECONNRESET");
    on(SIGPIPE, count_signal, 0);
    errno = 0;
    expect(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && signals == 0, "EPIPE");
    errno = 0;
    expect(write(fd, "x", 1) == -1 && errno == EPIPE && signals == 1, "SIGPIPE");
    puts("fine");
    return 0;
}

/* Echoes, "slow" only after a time. */
static int errors_peer(int fd) {
    char buffer[64];
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0) die("read");
        if (count == 0) return 0;
        if (memmem(buffer, count, "slow", 4)) usleep(200000);
        send_all(fd, buffer, count);
    }
}

/* Echoes, and closes by a reset after "reset". */
static int resets_at_word(int fd) {
    char buffer[64];
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count <= 0) die("read");
        if (memchr(buffer, 'r', count)) break;
        send_all(fd, buffer, count);
    }
    struct linger linger = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
    return 0;
}

/* Computes without a call, while the other end sends. */
static int computes(int fd) {
    warm(fd);
    send_all(fd, "data", 4);
    int64_t begin = now();
    volatile uint64_t number = 0;
    while (now() - begin < 1000000000) number++;
    char buffer[4];
    expect(recv(fd, buffer, 4, MSG_WAITALL) == 4, "the answer");
    puts("fine");
    return 0;
}

/* Closes the connection by a system call, as libuv does, and has its number for a file. */
static int closes_itself(int fd) {
    warm(fd);
    syscall(SYS_close, fd);
    expect(open("/dev/null", O_RDWR) == fd, "the number");
    expect(write(fd, "some", 4) == 4 && read(fd, &(char[4]){0}, 4) == 0, "the file");
    puts("fine");
    return 0;
}

/* Waits by a system call. */
static int polls_itself(int fd) {
    warm(fd);
    send_all(fd, "data", 4);
    struct pollfd polled = {fd, POLLIN, 0};
    struct timespec limit = {10, 0};
    expect(syscall(SYS_ppoll, &polled, 1, &limit, NULL, 0) == 1, "it is ready");
    char buffer[4];
    expect(read(fd, buffer, 4) == 4 && !memcmp(buffer, "data", 4), "the echo");
    warm(fd);
    puts("fine");
    return 0;
}

/* Moves bytes from a pipe to the connection by a system call. */
static int splices_itself(int fd) {
    warm(fd);
    int ends[2];
    expect(!pipe(ends) && write(ends[1], "data", 4) == 4, "a pipe");
    expect(syscall(SYS_splice, ends[0], NULL, fd, NULL, (size_t)4, 0) == 4, "splice()");
    char buffer[4];
    expect(recv(fd, buffer, 4, MSG_WAITALL) == 4 && !memcmp(buffer, "data", 4), "the echo");
    puts("fine");
    return 0;
}

/* Has another number for the connection by a system call, and closes the first one by another. */
static int doubles_itself(int fd) {
    warm(fd);
    int other = open("/dev/null", O_RDWR);
    expect(other > fd && syscall(SYS_dup3, fd, other, 0) == other, "another number");
    expect(!syscall(SYS_close_range, fd, fd, 0), "close_range()");
    expect(open("/dev/null", O_RDWR) == fd && write(fd, "some", 4) == 4, "the number");
    send_all(other, "data", 4);
    char buffer[4];
    expect(recv(other, buffer, 4, MSG_WAITALL) == 4 && !memcmp(buffer, "data", 4), "the echo");
    puts("fine");
    return 0;
}

/* Sends a word and waits for its echo. */
static void trip(int fd, const char *word) {
    char buffer[16];
    size_t size = strlen(word);
    send_all(fd, word, size);
    expect(recv(fd, buffer, size, MSG_WAITALL) == (ssize_t)size, "an echo");
    expect(!memcmp(buffer, word, size), "the echo");
}

static sigjmp_buf before_call;

static void jump(int number) {
    (void)number;
    siglongjmp(before_call, 1);
}

/* Leaves calls that wait by a jump from a handler. */
static int jumps(int fd) {
    warm(fd);
    struct sigaction act = {.sa_handler = jump};
    sigaction(SIGALRM, &act, NULL);
    for (volatile int time = 0; time < 40; time++) {
        if (!sigsetjmp(before_call, 1)) {
            struct itimerval timer = {{0}, {0, 500 + 100 * time}};
            setitimer(ITIMER_REAL, &timer, NULL);
            char buffer[4];
            if (time % 2) recv(fd, buffer, 4, 0);
            else poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1);
            die("it waits");
        }
        trip(fd, "data");
    }
    puts("fine");
    return 0;
}

static void watch(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {events, {.fd = fd}};
    expect(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl()");
}

static void finds(int epoll, int fd) {
    struct epoll_event event;
    expect(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.fd == fd, "epoll_wait()");
}

/* Watches the connection by an instance of epoll that another one watches. */
static int nests(int fd) {
    warm(fd);
    int inner = epoll_create1(0), outer = epoll_create1(0);
    watch(inner, fd, EPOLLIN);
    watch(outer, inner, EPOLLIN);
    for (int time = 0; time < 100; time++) {
        char buffer[4];
        send_all(fd, "data", 4);
        finds(outer, inner);
        finds(inner, fd);
        expect(recv(fd, buffer, 4, MSG_WAITALL) == 4, "the echo");
    }
    puts("fine");
    return 0;
}

/* Watches it by two instances of which one is woken. */
static int watches_alone(int fd) {
    warm(fd);
    int first = epoll_create1(0), second = epoll_create1(0);
    watch(first, fd, EPOLLIN | EPOLLEXCLUSIVE);
    watch(second, fd, EPOLLIN | EPOLLEXCLUSIVE);
    for (int time = 0; time < 100; time++) {
        char buffer[4];
        send_all(fd, "data", 4);
        finds(time % 2 ? first : second, fd);
        expect(recv(fd, buffer, 4, MSG_WAITALL) == 4, "the echo");
    }
    puts("fine");
    return 0;
}

/* Sends urgent data, which the other end does not read. */
static int urges(int fd) {
    warm(fd);
    send_all(fd, "da", 2);
    expect(send(fd, "!", 1, MSG_OOB) == 1, "urgent data");
    send_all(fd, "ta", 2);
    char buffer[4];
    expect(recv(fd, buffer, 4, MSG_WAITALL) == 4 && !memcmp(buffer, "data", 4), "the echo");
    trip(fd, "data");
    puts("fine");
    return 0;
}

/* Moves bytes by a pipe both ways. */
static int moves(int fd) {
    warm(fd);
    int ends[2];
    char buffer[4];
    expect(!pipe(ends) && write(ends[1], "data", 4) == 4, "a pipe");
    expect(splice(ends[0], NULL, fd, NULL, 4, 0) == 4, "to the connection");
    expect(splice(fd, NULL, ends[1], NULL, 4, 0) == 4, "from the connection");
    expect(read(ends[0], buffer, 4) == 4 && !memcmp(buffer, "data", 4), "the echo");
    puts("fine");
    return 0;
}

/* Starts a program whose output is the connection. */
static int spawns(int fd) {
    warm(fd);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *words[] = {"sh", "-c", "printf child", NULL}, buffer[5];
    pid_t child;
    int status;
    expect(!posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ), "posix_spawn()");
    expect(waitpid(child, &status, 0) == child && status == 0, "its end");
    expect(recv(fd, buffer, 5, MSG_WAITALL) == 5 && !memcmp(buffer, "child", 5), "its output");
    trip(fd, "data");
    puts("fine");
    return 0;
}

static uint32_t segments_sent(int fd) {
    enum { DATA_SEGMENTS_OUT = 156 };
    char info[160];
    socklen_t size = sizeof info;
    expect(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) && size == sizeof info, "TCP_INFO");
    uint32_t segments;
    memcpy(&segments, info + DATA_SEGMENTS_OUT, sizeof segments);
    return segments;
}

/* Puts several writes into one segment, and asks for acknowledgements at once. */
static int corks(int fd) {
    enum { TIMES = 1000 };
    const int on = 1, off = 0;
    char buffer[16];
    expect(!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), "TCP_CONGESTION");
    warm(fd);
    uint32_t before = segments_sent(fd);
    for (int time = 0; time < TIMES; time++) {
        expect(!setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), "TCP_CORK");
        for (int piece = 0; piece < 4; piece++) send_all(fd, "data" + piece, 1);
        expect(!setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off), "TCP_CORK");
        expect(recv(fd, buffer, 4, MSG_WAITALL) == 4 && !memcmp(buffer, "data", 4), "the echo");
        expect(!setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on), "TCP_QUICKACK");
    }
    /* A few may be sent again. */
    uint32_t segments = segments_sent(fd) - before;
    expect(segments >= TIMES && segments < 2 * TIMES, "a segment for four writes");
    expect(!setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), "TCP_CORK");
    int64_t begin = now();
    send_all(fd, "data", 4);
    expect(recv(fd, buffer, 4, MSG_WAITALL) == 4, "it is kept back, and not for ever");
    expect(now() - begin > 100000000, "it is kept back");
    socklen_t size = sizeof buffer;
    expect(!getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, buffer, &size), "its congestion control");
    expect(!strcmp(buffer, "reno"), "reno");
    puts("fine");
    return 0;
}

/* TCP_INFO counts what the stack transfers as well, and the connection stays there. */
static int tells(int fd) {
    enum { TIMES = 1000 };
    char buffer[64] = "";
    struct {
        uint64_t before[15], acknowledged, received;
        uint32_t segments[4], with_data_in, with_data_out;
    } is;
    for (int time = 1; time <= TIMES; time++) {
        send_all(fd, buffer, sizeof buffer);
        expect(recv(fd, buffer, sizeof buffer, MSG_WAITALL) == sizeof buffer, "the echo");
        socklen_t size = sizeof is;
        expect(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &is, &size) && size == sizeof is, "size");
        /* The kernel counts the beginning of the stream, too. */
        uint64_t bytes = time * sizeof buffer;
        expect(is.received == bytes || is.received == bytes + 1, "bytes that came");
        expect(is.acknowledged == bytes || is.acknowledged == bytes + 1, "bytes that were sent");
    }
    struct tcp_info info;
    socklen_t size = sizeof info;
    expect(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), "TCP_INFO");
    expect(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_unacked == 0, "its state");
    expect(info.tcpi_rtt > 0 && info.tcpi_rtt < 1000000 && info.tcpi_snd_cwnd > 0, "a round trip");
    expect(is.with_data_out >= TIMES && is.with_data_in >= TIMES, "segments");
    /* The first bytes alone. */
    memset(&info, 7, sizeof info);
    size = 8;
    expect(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) && size == 8, "8 bytes");
    expect(info.tcpi_rto == 0x07070707, "no more");
    int tos = 0x10;
    expect(!setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos), "IP_TOS");
    for (int time = 0; time < 100; time++) {
        send_all(fd, buffer, sizeof buffer);
        expect(recv(fd, buffer, sizeof buffer, MSG_WAITALL) == sizeof buffer, "the echo");
    }
    puts("fine");
    return 0;
}

/* Leaves a connection alone. */
static int idles(int fd) {
    warm(fd);
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    int64_t from = now();
    char buffer[4];
    struct timeval time = {2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    expect(read(fd, buffer, 4) == -1 && errno == EAGAIN, "nothing comes");
    sleep(2);
    int64_t whole = now() - from;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double used = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
    printf("%.6f\n", used / whole);
    return 0;
}

/* Starts other programs while it has a connection. */
static int starts(int fd) {
    warm(fd);
    expect(system("exit 3") == 3 << 8, "system()");
    warm(fd);
    FILE *pipe = popen("echo word", "r");
    char word[8];
    expect(pipe && fgets(word, sizeof word, pipe) && !strcmp(word, "word\n"), "popen()");
    expect(pclose(pipe) == 0, "pclose()");
    warm(fd);
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, 5);
        for (int other = 6; other < 1024; other++) close(other);
        execl("/bin/sh", "sh", "-c", "printf child >&5", (char *)NULL);
        _exit(1);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0, "vfork()");
    expect(recv(fd, word, 5, MSG_WAITALL) == 5 && !memcmp(word, "child", 5), "its word");
    warm(fd);
    puts("fine");
    return 0;
}

/* Closes all that it does not know, and goes on. */
static int closes(int fd) {
    warm(fd);
    expect(fd < 10, "a low number");
    expect(close(960) == -1 && errno == EBADF, "nothing of the program's is at 960");
    if (close_range(fd + 1, ~0U, 0) != 0) die("close_range");
    warm(fd);
    int other = dup(fd);
    expect(other == fd + 1, "the next number");
    warm(other);
    warm(fd);
    close(fd);
    warm(other);
    puts("fine");
    return 0;
}

/* Passes the connection to another process. */
static int passes(int fd) {
    int pair[2];
    char byte = 'x', space[CMSG_SPACE(sizeof fd)] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) die("socketpair");
    pid_t child = fork();
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
                             .msg_controllen = sizeof space};
    if (child == 0) {
        close(fd);
        expect(recvmsg(pair[0], &message, 0) == 1, "a message");
        int passed = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
        warm(passed);
        exit(0);
    }
    /* It has forked, so this connection is the kernel's; another one is not. */
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    getpeername(fd, (struct sockaddr *)&to, &length);
    int another = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(another, (struct sockaddr *)&to, sizeof to)) die("connect");
    shutdown(fd, SHUT_WR);
    char end;
    expect(read(fd, &end, 1) == 0, "the end");
    warm(another);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &another, sizeof another);
    expect(sendmsg(pair[1], &message, 0) == 1, "sendmsg");
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0, "the child is fine");
    warm(another);
    puts("fine");
    return 0;
}

static void *gets(void *of) {
    char buffer[4];
    for (int i = 0; i < 6; i++)
        if (recv(*(int *)of, buffer, 4, MSG_WAITALL) != 4) return NULL;
    return "all";
}

/* A thread waits for data before another one sends for the first time. */
static int waits_first(int fd) {
    pthread_t thread;
    pthread_create(&thread, NULL, gets, &fd);
    for (int i = 0; i < 3; i++) {
        usleep(50000);
        send_all(fd, "ping", 4);
        send_all(fd, "pong", 4);
    }
    void *result;
    pthread_join(thread, &result);
    expect(result != NULL, "all comes back");
    puts("fine");
    return 0;
}

/* Echoes, "slow" only after a second. */
static int late(int fd) {
    char buffer[64];
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0) die("read");
        if (count == 0) return 0;
        if (memmem(buffer, count, "slow", 4)) sleep(1);
        send_all(fd, buffer, count);
    }
}

/* The service ends while the program looks again and again, waits, or does something else. */
static int outlives(int fd, int timeout, int seconds) {
    char buffer[4];
    warm(fd);
    puts("ready");
    fflush(stdout);
    send_all(fd, "slow", 4);
    sleep(seconds);
    struct pollfd polled = {fd, POLLIN, 0};
    int64_t begin = now();
    while (poll(&polled, 1, timeout) == 0) expect(now() - begin < 10000000000, "it comes");
    expect(recv(fd, buffer, 4, MSG_WAITALL) == 4, "the answer");
    warm(fd);
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    expect(timeout == 0 || used.tv_sec * 1000000000LL + used.tv_nsec < 500000000, "no time");
    puts("fine");
    return 0;
}

static int looks_on(int fd) { return outlives(fd, 0, 0); }
static int waits_on(int fd) { return outlives(fd, -1, 0); }
static int sleeps_on(int fd) { return outlives(fd, -1, 2); }

/* Echoes, and tells how many segments had to be sent again. */
static int counts(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    echo(fd);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length)) die("TCP_INFO");
    printf("%u\n", info.tcpi_total_retrans);
    return 0;
}

static void *waits(void *of) {
    char buffer[4];
    return read(*(int *)of, buffer, 4) < 0 ? "failed" : "read";
}

/* Cancels a thread that waits for data. */
static int cancels(int fd) {
    warm(fd);
    pthread_t thread;
    pthread_create(&thread, NULL, waits, &fd);
    usleep(100000);
    pthread_cancel(thread);
    void *result;
    pthread_join(thread, &result);
    expect(result == PTHREAD_CANCELED, "the thread was cancelled");
    warm(fd);
    puts("fine");
    return 0;
}

int main(int count, char **words) {
    if (count < 5) return 2;
    int answers = !strcmp(words[1], "answer");
    int fd = answers ? answer(words[3], words[4]) : call(words[3], words[4]);
    struct {
        const char *name;
        int (*act)(int);
    } acts[] = {
        {"mixes", mixes}, {"sends-files", sends_files}, {"echo", echo}, {"echo-twice", echo_twice}, {"errors", errors},
        {"handlers", handlers}, {"threads", threads}, {"echo-to-end", echo_to_end},
        {"forks", forks}, {"executes", executes}, {"unsent", unsent}, {"slow", slow},
        {"is-reset", is_reset}, {"errors-peer", errors_peer}, {"resets-at-word", resets_at_word},
        {"waits-first", waits_first}, {"counts", counts},
        {"pieces", pieces},
        {"late", late}, {"looks-on", looks_on}, {"waits-on", waits_on}, {"sleeps-on", sleeps_on},
        {"starts", starts}, {"closes", closes}, {"passes", passes}, {"cancels", cancels},
        {"computes", computes}, {"tells", tells}, {"idles", idles},
        {"closes-itself", closes_itself},
        {"jumps", jumps}, {"nests", nests}, {"watches-alone", watches_alone}, {"urges", urges},
        {"moves", moves}, {"spawns", spawns},
        {"corks", corks},
        {"polls-itself", polls_itself},
        {"splices-itself", splices_itself},
        {"doubles-itself", doubles_itself},
    };
    if (!strcmp(words[2], "trips")) return trips(fd, atoi(words[5]), atoi(words[6]));
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(words[2], acts[i].name)) return acts[i].act(fd);
    return 2;
}
