/* A second translation unit, with an event of the same name as the first one's. */
#include "loopscope/trace.h"

int other_unit(int id);

int other_unit(int id)
{
    LOOPSCOPE_EVENT("forms", "plain", id, LOOPSCOPE_U16(unit, 2));
    return id;
}
