/* Questions and answers between two hosts, one at a time; the answer to one of them is late.
 *
 *     ping answer PORT SLOW          takes two seconds to receive question SLOW
 *     ping ask ADDRESS PORT COUNT
 */
#define _POSIX_C_SOURCE 200809L
#include <loopscope/trace.h>

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static int ask(int udp, struct sockaddr_in at, uint32_t count)
{
    const struct timespec period = {.tv_nsec = 2000000};
    uint32_t number;
    uint32_t answer;

    for (number = 1; number <= count; number++) {
        LOOPSCOPE_EVENT("ping", "asked", number);
        if (sendto(udp, &number, sizeof number, 0, (struct sockaddr *)&at, sizeof at) < 0 ||
            recv(udp, &answer, sizeof answer, 0) != sizeof answer || answer != number)
            return 1;
        LOOPSCOPE_EVENT("ping", "done", number);
        nanosleep(&period, NULL);
    }
    return 0;
}

static int answer(int udp, struct sockaddr_in at, uint32_t slow)
{
    const struct timespec late = {.tv_sec = 2};
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    uint32_t number;

    if (bind(udp, (struct sockaddr *)&at, sizeof at) < 0)
        return 1;
    while (recvfrom(udp, &number, sizeof number, 0, (struct sockaddr *)&from, &size) ==
           sizeof number) {
        if (number == slow)
            nanosleep(&late, NULL);
        LOOPSCOPE_EVENT("ping", "heard", number);
        LOOPSCOPE_EVENT("ping", "answered", number);
        if (sendto(udp, &number, sizeof number, 0, (struct sockaddr *)&from, size) < 0)
            return 1;
    }
    return 1;
}

int main(int argc, char **argv)
{
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};

    if (argc == 4 && strcmp(argv[1], "answer") == 0) {
        at.sin_port = htons((uint16_t)atoi(argv[2]));
        return answer(udp, at, (uint32_t)atoi(argv[3]));
    }
    if (argc == 5 && strcmp(argv[1], "ask") == 0) {
        inet_pton(AF_INET, argv[2], &at.sin_addr);
        at.sin_port = htons((uint16_t)atoi(argv[3]));
        return ask(udp, at, (uint32_t)atoi(argv[4]));
    }
    return 2;
}
