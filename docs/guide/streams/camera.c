/* Puts a picture 50 times a second, as camera.py does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <loopscope/stm.h>

int main(int argc, char **argv)
{
    struct loopscope_stm_service *service;
    struct loopscope_stm_channel *frames;
    struct loopscope_stm_output *out;
    struct loopscope_stm_options options = {.item_bytes = 640 * 480, .capacity = 4};
    long count = argc > 1 ? atol(argv[1]) : 0;
    if (loopscope_stm_connect(NULL, &service) != 0 ||
        loopscope_stm_create(service, "frames", &options, &frames) != 0 ||
        loopscope_stm_output(frames, &out) != 0)
        goto failed;
    for (long number = 0; number < count; number++) {
        struct loopscope_stm_loan *loan;
        void *picture;
        if (loopscope_stm_loan(out, LOOPSCOPE_STM_FOREVER, &loan, &picture) != 0)
            goto failed;
        memset(picture, (int)(number % 256), 640 * 480);
        if (loopscope_stm_loan_put(loan, number, 0, 640 * 480, LOOPSCOPE_STM_FOREVER) != 0)
            goto failed;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    if (loopscope_stm_put(out, count, 0, NULL, 0, LOOPSCOPE_STM_FOREVER) != 0) /* the end */
        goto failed;
    return 0;
failed:
    fprintf(stderr, "camera: %s\n", loopscope_stm_error());
    return 1;
}
