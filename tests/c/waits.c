/* Says that it is up, and goes on until its input ends. */
#include <stdio.h>

#include "loopscope/trace.h"

int main(void)
{
    LOOPSCOPE_EVENT("waits", "up", 1, LOOPSCOPE_F64(load, 0.5));
    puts("up");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    LOOPSCOPE_EVENT("waits", "down", 2);
    return 0;
}
