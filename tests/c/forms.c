/* Every form of the C header in C99. Prints how often the values of a disabled event were
 * evaluated. */
#include <stdio.h>

#include "loopscope/trace.h"

#define GROUP "forms"

int other_unit(int id);

static int evaluated;

static int count_evaluation(void)
{
    return ++evaluated;
}

static inline void in_inline(int id)
{
    LOOPSCOPE_EVENT("forms", "inlined", id);
}

int main(void)
{
    LOOPSCOPE_EVENT("forms", "plain", 1);
    LOOPSCOPE_EVENT(GROUP, "constant", UINT64_MAX);
    LOOPSCOPE_EVENT("forms", "one", -2, LOOPSCOPE_U32(size, 7));
    LOOPSCOPE_EVENT("forms", "unsigned", 3, LOOPSCOPE_U8(a, 0xff), LOOPSCOPE_U16(b, 0xfffe),
                    LOOPSCOPE_U32(c, 0xfffffffd), LOOPSCOPE_U64(d, UINT64_MAX - 3));
    LOOPSCOPE_EVENT("forms", "signed", 4, LOOPSCOPE_I8(a, -1), LOOPSCOPE_I16(b, -2),
                    LOOPSCOPE_I32(c, -3), LOOPSCOPE_I64(d, INT64_MIN));
    LOOPSCOPE_EVENT("forms", "float", 5, LOOPSCOPE_F32(x, 1.5f), LOOPSCOPE_F64(event, -0.1));
    LOOPSCOPE_EVENT("forms", "eight", 6, LOOPSCOPE_U8(f1, 1), LOOPSCOPE_F64(f2, 2),
                    LOOPSCOPE_U8(f3, 3), LOOPSCOPE_U64(f4, 4), LOOPSCOPE_I16(f5, 5),
                    LOOPSCOPE_U32(f6, 6), LOOPSCOPE_F32(f7, 7), LOOPSCOPE_I64(f8, 8));
    for (int i = 0; i < 10; i++)
        LOOPSCOPE_EVENT("forms", "loop", i, LOOPSCOPE_I32(square, i *i));
    if (evaluated == 0)
        LOOPSCOPE_EVENT("forms", "branch", 8);
    else
        LOOPSCOPE_EVENT("forms", "otherwise", 9);
    in_inline(10);
    in_inline(11);
    int id = other_unit(12);
    LOOPSCOPE_EVENT("off", "evaluated", count_evaluation(),
                    LOOPSCOPE_I32(value, count_evaluation()));
    printf("%d %d\n", evaluated, id);
    return 0;
}
