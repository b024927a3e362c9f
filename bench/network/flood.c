// Sends small UDP datagrams as fast as it can, or at a rate, and prints how many it sent and in
// how many seconds. One system call segments many datagrams (UDP_SEGMENT).
//
// flood ADDRESS PORT PAYLOAD_BYTES DATAGRAMS_PER_S SECONDS     0: as fast as it can
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 32 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    int size = atoi(argv[3]);
    double rate = atof(argv[4]), seconds = atof(argv[5]);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)
        || setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size)) {
        perror("flood");
        return 1;
    }
    char *payload = calloc(BATCH, size);
    if (!payload)
        return 1;
    uint64_t sent = 0;
    double start = now(), time = start;
    while (time - start < seconds) {
        if (rate == 0 || sent < rate * (time - start)) {
            if (send(fd, payload, (size_t)BATCH * size, 0) < 0) {
                perror("flood: send");
                return 1;
            }
            sent += BATCH;
        }
        time = now();
    }
    printf("%llu %.6f\n", (unsigned long long)sent, time - start);
    return 0;
}
