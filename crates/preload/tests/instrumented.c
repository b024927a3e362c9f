/* A program with events of its own, which knows nothing of the stack: round trips by a thread, by a
 * child that it forks, and by the thread again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loopscope/trace.h"

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int call(const char *host, const char *port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    inet_pton(AF_INET, host, &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void trips(int fd, int first, int count) {
    char message[64] = "";
    for (int number = first; number < first + count; number++) {
        LOOPSCOPE_EVENT("own", "asks", number);
        if (send(fd, message, sizeof message, MSG_NOSIGNAL) != sizeof message) die("send");
        if (recv(fd, message, sizeof message, MSG_WAITALL) != sizeof message) die("recv");
        LOOPSCOPE_EVENT("own", "answered", number);
    }
}

static int count;
static char **word;

static void *run(void *none) {
    int fd = call(word[1], word[2]);
    trips(fd, 0, count);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        trips(call(word[1], word[2]), count, count);
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) die("the child");
    close(fd);
    trips(call(word[1], word[2]), 2 * count, count);
    return none;
}

int main(int words, char **given) {
    if (words < 5) return 2;
    word = given;
    count = atoi(word[3]);
    /* The core that the program's events go to; "nobody's" where it is linked into the program. */
    void *event = dlsym(RTLD_DEFAULT, "loopscope_event");
    Dl_info info = {.dli_fname = "nobody's"};
    if (event && !dladdr(event, &info)) die("dladdr");
    if (!strstr(info.dli_fname, word[4])) {
        fprintf(stderr, "its core is %s\n", info.dli_fname);
        return 1;
    }
    /* This thread has nothing to record but that the last connection, which is open, goes back. */
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL)) die("a thread");
    puts("fine");
    return 0;
}
