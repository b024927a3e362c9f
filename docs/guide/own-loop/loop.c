/* A sensor that sends a reading every 2 ms, and a controller that receives it.
 *
 *     loop controller PORT
 *     loop sensor ADDRESS PORT COUNT
 */
#define _POSIX_C_SOURCE 200809L
#include <loopscope/trace.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

int main(int argc, char **argv)
{
    int controller = argc == 3 && strcmp(argv[1], "controller") == 0;
    int sensor = argc == 5 && strcmp(argv[1], "sensor") == 0;
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct timespec period = {.tv_nsec = 2000000};
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    uint32_t number;

    if (!controller && !sensor) {
        fprintf(stderr, "usage: loop controller PORT | loop sensor ADDRESS PORT COUNT\n");
        return 2;
    }
    at.sin_port = htons((uint16_t)atoi(argv[argc == 3 ? 2 : 3]));
    if (sensor) {
        inet_pton(AF_INET, argv[2], &at.sin_addr);
        for (number = 1; number <= (uint32_t)atoi(argv[4]); number++) {
            LOOPSCOPE_EVENT("loop", "sent", number);
            if (sendto(udp, &number, sizeof number, 0, (struct sockaddr *)&at, sizeof at) < 0)
                return 1;
            nanosleep(&period, NULL);
        }
        return 0;
    }
    if (bind(udp, (struct sockaddr *)&at, sizeof at) < 0)
        return 1;
    while (recv(udp, &number, sizeof number, 0) == sizeof number)
        LOOPSCOPE_EVENT("loop", "received", number, LOOPSCOPE_U32(size, sizeof number));
    return 1;
}
