/* Written against the first header, loopscope/trace.h in this folder. */
#include <loopscope/trace.h>

#include <stdio.h>

#define GROUP "first"

static inline void in_inline(int id)
{
    LOOPSCOPE_EVENT("first", "inlined", id);
}

int main(void)
{
    if (loopscope_thread_init() != 0)
        return 1;
    LOOPSCOPE_EVENT(GROUP, "plain", UINT64_MAX);
    LOOPSCOPE_EVENT("first", "unsigned", 2, LOOPSCOPE_U8(a, 0xff), LOOPSCOPE_U16(b, 0xfffe),
                    LOOPSCOPE_U32(c, 0xfffffffd), LOOPSCOPE_U64(d, UINT64_MAX - 3));
    LOOPSCOPE_EVENT("first", "signed", 3, LOOPSCOPE_I8(a, -1), LOOPSCOPE_I16(b, -2),
                    LOOPSCOPE_I32(c, -3), LOOPSCOPE_I64(d, INT64_MIN), LOOPSCOPE_F32(e, 1.5f),
                    LOOPSCOPE_F64(f, -0.1), LOOPSCOPE_U8(g, 7), LOOPSCOPE_U8(h, 8));
    for (int i = 0; i < 3; i++)
        in_inline(i);
    int evaluated = 0;
    LOOPSCOPE_EVENT("off", "evaluated", ++evaluated, LOOPSCOPE_I32(value, ++evaluated));
    printf("%d\n", evaluated);
    return 0;
}
