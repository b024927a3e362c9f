/* Publishes COUNT messages by UDP, or calls back for them. Each tracepoint of LTTng's stands between
 * two of loopscope's, which say when it was. A message is its number and when it was published, by
 * which ROS 2's tracepoints know it again.
 *
 *     topic publish ADDRESS PORT COUNT
 *     topic subscribe PORT COUNT
 */
#define _POSIX_C_SOURCE 200809L
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "provider.h"
#include "ros2.h"

#include <loopscope/trace.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct message {
    uint32_t number, unused;
    int64_t published;
};

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int argc, char **argv)
{
    int publishes = argc == 5 && strcmp(argv[1], "publish") == 0;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    struct timespec period = {.tv_nsec = 2000000}, execution = {.tv_nsec = 1000000};
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    uint32_t count = (uint32_t)atoi(argv[argc - 1]), number;
    struct message message = {0};

    at.sin_port = htons((uint16_t)atoi(argv[argc - 2]));
    if (publishes) {
        inet_pton(AF_INET, argv[2], &at.sin_addr);
        for (number = 1; number <= count; number++) {
            LOOPSCOPE_EVENT("oracle", "before_publish", number);
            lttng_ust_tracepoint(topic, publish, number, "scan");
            LOOPSCOPE_EVENT("oracle", "after_publish", number);
            message.number = number;
            message.published = now();
            lttng_ust_tracepoint(ros2, rmw_publish, argv, &message, message.published);
            if (sendto(udp, &message, sizeof message, 0, (struct sockaddr *)&at, sizeof at) < 0)
                return 1;
            nanosleep(&period, NULL);
        }
        /* The subscriber tells that it has seen the last. */
        return recv(udp, &number, sizeof number, 0) == sizeof number ? 0 : 1;
    }
    if (bind(udp, (struct sockaddr *)&at, sizeof at) < 0)
        return 1;
    puts("listening");
    fflush(stdout);
    for (number = 0; number < count;) {
        if (recvfrom(udp, &message, sizeof message, 0, (struct sockaddr *)&at, &size) < 0)
            return 1;
        number = message.number;
        LOOPSCOPE_EVENT("oracle", "before_callback", number);
        lttng_ust_tracepoint(topic, callback, number, "scan");
        LOOPSCOPE_EVENT("oracle", "after_callback", number);
        lttng_ust_tracepoint(ros2, rmw_take, argv, &message, message.published, 1);
        nanosleep(&execution, NULL);
        lttng_ust_tracepoint(ros2, callback_start, argv, 0);
    }
    return sendto(udp, &number, sizeof number, 0, (struct sockaddr *)&at, size) < 0;
}
